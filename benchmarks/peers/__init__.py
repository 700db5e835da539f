"""Other frameworks on the one-step task, each in a virtual environment and a process of its own."""

import json
import os
import selectors
import signal
import subprocess
import sys
import sysconfig
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedmbo_ray.core.rng import stream
from fedmbo_ray.problems.base import Task

REQUIREMENTS = {"flower": "flwr[simulation]==1.41.0", "pfl": "pfl==0.6.0"}
HERE = Path(__file__).parent
PATIENCE = 300.0  # seconds without an answer, or with pip: a framework that hangs is left out, like one that fails


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
    what = f"{name}: {' '.join(command[1:])}"
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{what} has not ended within {PATIENCE:.0f} s") from None
    if ended.returncode:
        raise Unavailable(f"{what} failed: {(ended.stderr.strip() or '?').splitlines()[-1]}")


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
        self.name, self.received = name, b""
        self.errors = (task.parent / f"{name}.log").open("w+")
        self.process = subprocess.Popen(
            [str(python), str(HERE / f"{name}_arm.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=_environment(task),
            start_new_session=True,  # so that it can be ended with all that it has started
        )
        self._answer()
        self.run(1)  # a framework that starts may still fail, or hang, at its first round

    def run(self, rounds: int) -> None:
        self._ask(str(rounds))

    def figures(self) -> dict[str, float]:
        return self._ask("figures")

    def close(self) -> None:
        try:
            self._say("end")
            self.process.wait(60)
        except (OSError, subprocess.TimeoutExpired):
            self._kill()

    def _ask(self, what: str) -> dict[str, float]:
        self._say(what)
        return self._answer()

    def _say(self, what: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n".encode())
        self.process.stdin.flush()

    def _answer(self) -> dict[str, float]:
        """The next line that is for us; frameworks print what they like in between."""
        deadline = time.monotonic() + PATIENCE
        while (line := self._line(deadline)) is not None:
            if line.startswith(b"@@ "):
                return json.loads(line[3:])
        ending = self.process.poll()
        self._kill()
        self.errors.seek(0)
        last = (self.errors.read().strip() or "nothing").splitlines()[-1]
        how = f"has not answered within {PATIENCE:.0f} s" if ending is None else f"ended with exit code {ending}"
        raise Unavailable(f"{self.name} {how}; the last it said: {last}")

    def _line(self, deadline: float) -> bytes | None:
        """The next line; None at the end of all, or if none comes in time."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self.received:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    return None
                if not (more := os.read(self.process.stdout.fileno(), 1 << 16)):
                    self.process.wait(60)
                    return None
                self.received += more
        line, _, self.received = self.received.partition(b"\n")
        return line

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)


def _environment(task: Path) -> dict[str, str]:
    """Ours, less what would lead a peer's Python or Ray to this process's."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "PYTHON", "VIRTUAL_ENV"))}
    own = {"TASK": str(task.absolute()), "PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1", "RAY_worker_niceness": "0"}
    return kept | own
