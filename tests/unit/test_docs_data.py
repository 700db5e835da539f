"""docs/data.md from top to bottom, as somebody would paste it."""

import re
import runpy
import shlex
from pathlib import Path

import pytest
from checkout import ROOT
from own_files import value, write_saved

from fedmbo_ray.cli.main import main

PAGE = (ROOT / "docs" / "data.md").read_text()
BLOCKS = re.findall(r"```(python|sh|text)\n(.*?)```", PAGE, re.S)


def save_numbers(folder: Path) -> None:
    """In place of MNIST, which would have to be downloaded."""
    columns = {"a": [float(i % 3) for i in range(120)], "b": [i % 7 for i in range(120)]}
    features = {"a": value("float64"), "b": value("int64"), "label": value("int64")}
    write_saved(folder, columns | {"label": [i % 3 for i in range(120)]}, features)


def test_everything_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    save_numbers(tmp_path / "saved")
    said = ""
    for kind, content in BLOCKS:
        if kind == "python":
            name = content.partition("\n")[0].removeprefix("# ")
            (tmp_path / name).write_text(content)
        elif kind == "sh":
            for line in content.splitlines():
                program, *words = shlex.split(line)
                if program == "python":
                    runpy.run_path(words[0])
                else:
                    assert main(words) == 0, capsys.readouterr().err
            shown = capsys.readouterr()
            said = "\n".join(line.strip() for line in (shown.out + shown.err).splitlines())
        else:
            for line in content.splitlines():  # figures of a run may differ in the last digit on another machine
                assert line.strip().partition(": upper")[0] in said
    assert (tmp_path / "clients.png").exists()


def test_the_messages_are_those_of_the_program() -> None:
    """Each is in the tests of mistakes, or is made of the same words."""
    sources = "".join(path.read_text() for path in (ROOT / "fedmbo_ray" / "data").glob("*.py"))
    words = re.sub(r"\s+", " ", re.sub(r'"\s*\n\s*f?"', "", sources))
    table = PAGE.partition("## What goes wrong")[2]
    for message in re.findall(r"\| `(data.*?)` \|", table):
        rule = message.partition(" ")[2]
        longest = max(re.split(r"'[^']*'|\d+|…\S*|/\S+|node\d|\[.*?\]|known: .*|×|input_ids", rule), key=len).strip()
        assert longest.strip(" ;,(") in words, longest
