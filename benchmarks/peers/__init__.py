"""Other frameworks on the one-step task, each in a virtual environment and a process of its own."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedmbo_ray.core.rng import stream
from fedmbo_ray.problems.base import Task

REQUIREMENTS = {"flower": "flwr[simulation]==1.41.0", "pfl": "pfl==0.6.0"}
HERE = Path(__file__).parent


class Unavailable(Exception):
    """A peer that can't be installed or started here."""


def environment(name: str, root: Path) -> Path:
    """The Python of a peer's virtual environment, made on first use, with what we run where its versions allow."""
    folder = root / name
    python, done = folder / "bin" / "python", folder / "ready"
    if not done.exists():
        wanted = [REQUIREMENTS[name], f"torch=={torch.__version__.partition('+')[0]}"]
        _call(name, sys.executable, "-m", "venv", "--clear", str(folder))
        _borrow(folder)
        _call(name, str(python), "-m", "pip", "install", "--quiet", "--no-compile", *wanted)
        done.write_text("\n".join(wanted) + "\n")
    return python


def _call(name: str, *command: str) -> None:
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode:
        last = (ended.stderr.strip() or "?").splitlines()[-1]
        raise Unavailable(f"{name}: {' '.join(command[1:])} failed: {last}")


def _borrow(folder: Path) -> None:
    """Let pip find our packages behind the environment's own: the same torch, and a gigabyte less to install."""
    own = sysconfig.get_path("purelib", vars={"base": str(folder)})
    ours = dict.fromkeys(sysconfig.get_path(kind) for kind in ("purelib", "platlib"))
    (Path(own) / "ours.pth").write_text("\n".join(ours) + "\n")


def export(task: Task, seed: int, path: Path, **numbers: float) -> None:
    """The task in plain arrays, for programs that know nothing of this package."""
    data: Any = task.data
    assert task.test is not None
    rows = data.splits["train"]
    x, y = task.problem.init(stream(seed, "init"))
    arrays = {
        "images": data.inputs.reshape(len(data.inputs), -1),
        "targets": data.targets,
        "order": rows.order,
        "start": rows.start,
        "size": rows.size,
        "test_images": task.test.inputs.flatten(1).numpy(),
        "test_targets": task.test.targets.numpy(),
        "x": x.numpy(),
        "y": y.numpy(),
    }
    np.savez(path, **arrays, **{name: np.array(number) for name, number in numbers.items()})


class Peer:
    """A script that does as many rounds as a line on its standard input says, and answers with a line of JSON."""

    def __init__(self, name: str, python: Path, task: Path) -> None:
        self.name = name
        self.errors = (task.parent / f"{name}.log").open("w+")
        self.process = subprocess.Popen(
            [str(python), str(HERE / f"{name}_arm.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=_environment(task),
        )
        self._answer()

    def run(self, rounds: int) -> None:
        self._ask(str(rounds))

    def figures(self) -> dict[str, float]:
        return self._ask("figures")

    def close(self) -> None:
        try:
            self._say("end")
            self.process.wait(60)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()

    def _ask(self, what: str) -> dict[str, float]:
        self._say(what)
        return self._answer()

    def _say(self, what: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()

    def _answer(self) -> dict[str, float]:
        """The next line that is for us; frameworks print what they like in between."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("@@ "):
                return json.loads(line[3:])
        self.errors.seek(0)
        last = (self.errors.read().strip() or "nothing").splitlines()[-1]
        raise Unavailable(f"{self.name} ended with exit code {self.process.wait()}; the last it said: {last}")


def _environment(task: Path) -> dict[str, str]:
    """Ours, less what would lead a peer's Python or Ray to this process's."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "PYTHON", "VIRTUAL_ENV"))}
    own = {"TASK": str(task.absolute()), "PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1", "RAY_worker_niceness": "0"}
    return kept | own
