"""`fedmbo new` writes a package whose names are its own. That it installs and works: tests/slow/test_wheel.py."""

import ast
import tomllib
from pathlib import Path

import pytest

from fedmbo_ray.cli.new import main


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_package_has_the_name_everywhere(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["our_steps"]) == 0
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert {"README.md", "pyproject.toml", "method.py", "test_our_steps.py"} <= {file.name for file in files}
    assert not any("my_methods" in file.read_text() or "my_methods" in str(file.relative_to(folder)) for file in files)
    assert [each.name for each in folder.iterdir()] == ["our_steps"]  # nothing is left beside it
    said = capsys.readouterr().out
    assert said.splitlines()[1:] == [
        "  pip install --editable './our_steps[test]'",
        "  python -m pytest our_steps",
        "  fedmbo run algorithm=our_steps_local_soba rounds=50",
    ]


def test_entry_points_lead_to_classes_and_begin_with_the_name(folder: Path) -> None:
    assert main(["our_steps"]) == 0
    project = tomllib.loads((folder / "our_steps" / "pyproject.toml").read_text())["project"]
    points = [point for group in project["entry-points"].values() for point in group.items()]
    assert len(points) == 6
    for name, value in points:
        module, _, cls = value.partition(":")
        tree = ast.parse((folder / "our_steps" / (module.replace(".", "/") + ".py")).read_text())
        assert cls in {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
        assert name.startswith("our_steps_")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("2fast", "NAME must be a Python name that begins with a letter"),
        ("my-methods", "NAME must be a Python name that begins with a letter"),
        ("_mine", "NAME must be a Python name that begins with a letter"),
        ("mine_", "NAME must be a Python name that begins with a letter"),
        ("class", "NAME must be a Python name that begins with a letter"),
        ("../mine", "NAME must be a Python name that begins with a letter"),
        ("torch", "Python already has a module 'torch'"),
        ("there", "NAME must be the name of a new folder, but there exists"),
    ],
)
def test_a_wrong_name_is_refused_in_one_line(
    name: str, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "there").mkdir()
    assert main([name]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert [each.name for each in folder.iterdir()] == ["there"]
