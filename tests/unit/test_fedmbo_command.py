"""The command `fedmbo`: its words, its names, what it imports, and that it leaves nothing changed behind it."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from checkout import ROOT

from fedmbo_ray import __version__
from fedmbo_ray.cli.command import called, guarded, result_alone
from fedmbo_ray.cli.main import COMMANDS, main
from fedmbo_ray.config.shipped import find_config, shipped_configs
from fedmbo_ray.core.entry import exit_code
from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.core.interruptions import at_stake
from fedmbo_ray.core.io import SHIPPED


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_help_lists_the_commands_and_three_examples(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    said = capsys.readouterr().out
    assert all(f"\n  {name} " in said for name in COMMANDS)
    assert said.partition("Examples:")[2].count("fedmbo ") == 3


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"fedmbo_ray {__version__}\n"


@pytest.mark.parametrize(("word", "nearest"), [("rnu", "run"), ("catalogue", "catalog"), ("--verison", "--version")])
def test_an_unknown_command_is_answered_with_the_nearest(
    word: str, nearest: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([word]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: unknown command {word!r}; did you mean {nearest!r}? known: ")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("/usr/bin/fedmbo", "fedmbo run"),
        ("/somewhere/fedmbo_ray/run.py", "python -m fedmbo_ray.run"),
        ("/somewhere/fedmbo_ray/__main__.py", "python -m fedmbo_ray run"),
    ],
)
def test_usage_names_the_command_as_it_was_called(program: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [program])
    assert called("fedmbo_ray.run") == name


HEAVY = ("torch", "ray", "mlflow", "matplotlib", "pandas", "sklearn", "scipy", "numpy")
# Runs each command of `words` in this one process, and says after each which heavy packages have been imported.
PROGRAM = f"""
import contextlib, io, json, sys
from fedmbo_ray.cli.main import main

for words in json.loads(sys.argv.pop()):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            code = main(words)
        except SystemExit as error:
            code = error.code or 0
    print(json.dumps([words, code, [name for name in {HEAVY} if name in sys.modules]]))
"""


def imports(folder: Path, *commands: list[str]) -> list[list]:
    line = [sys.executable, "-c", PROGRAM, json.dumps(commands)]
    env = {"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": "/usr/bin:/bin", "HOME": str(folder)}
    done = subprocess.run(line, cwd=folder, env=env, capture_output=True, text=True, timeout=100, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_what_needs_no_numbers_imports_none(tmp_path: Path) -> None:
    helps = [[name, "--help"] for name in COMMANDS]
    mistakes = [["nonsense"], ["cluster", "check"], ["cluster", "check", "nowhere.yaml"], ["ui"], ["new", "2x"]]
    found = imports(tmp_path, ["--help"], ["--version"], *helps, *mistakes)
    assert [code for _, code, _ in found] == [0] * (2 + len(helps)) + [2] * len(mistakes)
    assert [words for words, _, heavy in found if heavy] == []


def test_a_bad_config_and_the_catalogue_import_torch_alone(tmp_path: Path) -> None:
    commands = (["run", "nonsense=1"], ["run", "mnits"], ["data", "quadratic"], ["catalog", "--json"])
    found = imports(tmp_path, *commands)
    assert [code for _, code, _ in found] == [2, 2, 2, 0]
    assert set(found[-1][2]) == {"torch", "numpy"}


def test_the_package_itself_imports_nothing_heavy() -> None:
    program = f"import sys, fedmbo_ray; print([name for name in {(*HEAVY, 'pydantic', 'rich')} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_shipped_config_is_found_by_name_and_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for word in ("mnist", "tune_configs/mnist.yaml", "./tune_configs/mnist.yaml", "tune_configs/mnist"):
        assert find_config(word) == SHIPPED / "mnist.yaml"
    assert find_config("studies/theory/inner") == SHIPPED / "studies" / "theory" / "inner.yaml"
    for missing in ("mnist.yaml", "./mnist.yaml", "mine/mnist.yaml", Path("mnist"), Path("tune_configs/mnist.yaml")):
        with pytest.raises(ConfigError, match=f"can't read {missing}: No such file"):
            find_config(missing)
    assert {"mnist", "quickstart", "methods/fedmbo"} <= shipped_configs().keys()


def test_a_file_comes_before_a_shipped_config_and_a_folder_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mnist.yaml").write_text("seed: 1\n")
    Path("quadratic").mkdir()
    assert find_config("mnist.yaml") == Path("mnist.yaml")
    assert find_config("mnist") == SHIPPED / "mnist.yaml"
    assert find_config("quadratic") == SHIPPED / "quadratic.yaml"


def test_a_config_that_is_nowhere_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"can't read mnits: No such file .* did you mean 'mnist'"):
        find_config("mnits")


def test_commands_put_signal_handlers_back(capsys: pytest.CaptureFixture[str]) -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def work() -> int:
        assert signal.getsignal(signal.SIGTERM) != before[signal.SIGTERM]
        with at_stake():
            signal.raise_signal(signal.SIGTERM)
        raise AssertionError("a signal must interrupt the work")

    assert guarded(work, lambda: "; go on") == 143
    assert capsys.readouterr().err == "interrupted; go on\n"
    assert {number: signal.getsignal(number) for number in before} == before


def test_a_plug_in_that_exits_with_words_has_them_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert [exit_code(asked) for asked in (None, 0, 3, "no licence")] == [0, 0, 3, 1]
    assert capsys.readouterr().err == "no licence\n"


def test_a_command_can_be_called_in_another_thread() -> None:
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(guarded(lambda: 7, lambda: "")))
    thread.start()
    thread.join()
    assert codes == [7]


def test_stdout_is_for_the_result_and_comes_back(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout

    def fails_on_the_way() -> None:
        with result_alone() as stdout:
            print("progress")
            print("result", file=stdout)
            raise ConfigError("wrong")

    with pytest.raises(ConfigError, match="wrong"):
        fails_on_the_way()
    assert sys.stdout is before
    said = capsys.readouterr()
    assert (said.out, said.err) == ("result\n", "progress\n")


def test_the_catalogue_lists_shipped_configs_and_sweeps(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["catalog", "configs", "sweeps", "--json"]) == 0
    found = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert found.keys() == shipped_configs().keys()
    assert (found["mnist"]["kind"], found["quickstart"]["kind"]) == ("configs", "sweeps")
    assert all(each["summary"] for each in found.values())
    assert main(["catalog", "quickstart"]) == 0
    assert "run it: fedmbo tune quickstart" in capsys.readouterr().out


def test_modules_of_the_working_folder_can_be_named_in_a_config(tmp_path: Path) -> None:
    (tmp_path / "my_models.py").write_text(
        "from torch import nn\ndef wide(shape):\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.ReLU())\n"
    )
    command = [str(Path(sys.executable).parent / "fedmbo"), "run", "problem.backbone=my_models:wide", "rounds=1"]
    done = subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True)
    assert done.returncode == 0, done.stderr
