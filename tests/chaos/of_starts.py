"""Signals to commands that start: fresh processes, which import what forked ones have imported before."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from checkout import ROOT
from kinds import KINDS
from of_sweeps import SWEEP, all_right, continued, started
from suffering import MARK, RAY, WORDS, Check, Ended, Suffering, Wrong, carried_on

SECONDS = 8.0  # in which a command starts, and begins its work
MOST_LINES = 12
UGLY = re.compile(r"Traceback|Exception ignored|\*\*\* |terminate called|Aborted|Fatal Python error")


def starting(command: str, words: tuple[str, ...], number: signal.Signals) -> Check:
    """It ends as its signal says, without a dump, and whatever it has done can be continued or begun anew."""

    def check(s: Suffering) -> str:
        process = fresh(s, command, *words, "--out", str(s.out))
        time.sleep(float(s.rng.uniform(0, SECONDS)))
        while process.poll() is None and not catches(process.pid, signal.SIGHUP):  # Python itself is starting
            time.sleep(0.001)
        process.send_signal(number)
        _, err = process.communicate(timeout=120)
        if process.returncode not in (0, 128 + number):
            raise Wrong(f"exit code {process.returncode} after {number.name}: {err[-3000:]}")
        if UGLY.search(err) or len(err.splitlines()) > MOST_LINES:
            raise Wrong(f"after {number.name}: {err[-3000:]}")
        s.nothing_left()
        if command == "run":
            return carried_on(s)
        begun = (s.out / "sweep.yaml").exists()
        return all_right(continued(s, SWEEP) if begun else Ended(*started(s, SWEEP).finish()), s, SWEEP)

    return check


def fresh(s: Suffering, command: str, *words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, MARK: s.mark, "PYTHONPATH": str(ROOT)}
    environment |= {"MLFLOW_TRACKING_URI": s.tracking, "TMPDIR": str(s.folder)}
    line = [sys.executable, "-m", f"fedmbo_ray.{command}", *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(line, cwd=s.folder, env=environment, start_new_session=True, **pipes)  # type: ignore[call-overload, no-any-return]


def catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal: the program has begun."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = re.search(r"^SigCgt:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return caught is not None and bool(int(caught[1], 16) >> (number - 1) & 1)


COMMANDS = {"run": ("run", WORDS), "run with Ray": ("run", (*WORDS, *RAY)), "tune": ("tune", SWEEP.words)}
for name, (command, words) in COMMANDS.items():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        KINDS[f"start {number.name} of {name}"] = starting(command, words, number)
