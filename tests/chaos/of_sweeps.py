"""Faults of sweeps: their records are compared in the folder and in MLflow."""

import json
import signal
import sqlite3
import time

from kinds import KINDS
from suffering import ROUNDS, WORDS, Check, Suffering, Wrong, lines, reference

SWEEP = (
    *WORDS,
    "algorithm.step_size={grid: [0.03, 0.05]}",
    "algorithm.lower.step_size=0.5",
    "tune.scheduler=fifo",
    "--out",
)
METRICS = "select run_uuid, count(*), count(distinct step) from metrics where key = 'upper_loss' group by 1"


def sweep_killed(number: signal.Signals) -> Check:
    """A sweep that dies and is continued has the records of one that does not, in its folder and in MLflow."""

    def check(s: Suffering) -> str:
        place = s.folder / "sweep"
        process = s.start(*SWEEP, str(place), command="tune")
        records, deadline = place / "trials/00000/seed_000/records.jsonl", time.monotonic() + 120
        wanted = int(s.rng.integers(1, 8))
        while process.poll() is None and lines(records) < wanted and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(number)
        code = process.wait()
        if number == signal.SIGKILL:
            s.nothing_left()
        elif code not in (0, 128 + number):
            raise Wrong(f"exit code {code}: {process.said()[1][-1000:]}")
        ended = s.run(*SWEEP, str(place), "--resume", command="tune")
        if ended.code != 0:
            raise Wrong(f"exit code {ended.code}: {ended.err[-2000:]}")
        return sweep_right(s)

    return check


def sweep_right(s: Suffering) -> str:
    """Two trials with the right bits at the second point, all their records once, in the folder and in MLflow."""
    for name in ("00000", "00001"):
        rows = (s.folder / f"sweep/trials/{name}/seed_000/records.jsonl").read_text().splitlines()
        if [json.loads(row)["round"] for row in rows] != ROUNDS:
            raise Wrong(f"trial {name} has the records {rows}")
    last = json.loads(rows[-1])
    if (last["x_sha256"], last["y_sha256"]) != reference():
        raise Wrong("a trial finished with other bits")
    with sqlite3.connect(s.folder / "mlflow.db") as store:
        (runs,) = store.execute("select count(*) from runs").fetchone()
        points = store.execute(METRICS).fetchall()
    if runs != 3 or [point[1:] for point in points] != [(9, 9)] * len(points) or len(points) < 2:
        raise Wrong(f"MLflow has {runs} runs with {points}")
    return "right"


for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
    KINDS[f"sweep {number.name}"] = sweep_killed(number)
