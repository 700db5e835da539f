"""Progress of a run: a live bar on a terminal, a line every few seconds elsewhere; always on stderr."""

import sys
import time
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

Record = dict[str, Any]
SECONDS_BETWEEN_LINES = 5.0


class RunProgress:
    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        self.first: tuple[int, float] | None = None  # round and time of the first update: what came before was resumed
        self.figures = ""
        self.updated = 0.0
        self.last_line = -SECONDS_BETWEEN_LINES
        console = Console(stderr=True)
        columns = ("{task.completed}/{task.total}", "{task.fields[figures]}", "{task.fields[speed]}")
        texts = [TextColumn(text) for text in columns]
        self.bar = Progress(texts[0], BarColumn(bar_width=10), *texts[1:], TimeRemainingColumn(), console=console)
        self.live = console.is_terminal
        self.task = self.bar.add_task("", total=rounds, figures="", speed="")

    def __enter__(self) -> "RunProgress":
        if self.live:
            self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.live:
            self.bar.stop()

    def show(self, record: Record) -> None:
        self.figures = figures(record)
        self._update(record["round"], ending="status" in record)

    def tick(self, round: int) -> None:
        """After a round without a record; before the first record there is nothing to show."""
        if self.figures and round < self.rounds and time.monotonic() - self.updated > 0.2:
            self._update(round)

    def _update(self, round: int, ending: bool = False) -> None:
        now = self.updated = time.monotonic()
        self.first = self.first or (round, now)
        speed = (round - self.first[0]) / (now - self.first[1]) if now > self.first[1] else 0.0
        if self.live:
            self.bar.update(self.task, completed=round, figures=self.figures, speed=f"{speed:.1f}/s")
        elif now - self.last_line >= SECONDS_BETWEEN_LINES or ending:
            self.last_line = now
            left = (self.rounds - round) / speed if speed else 0.0
            eta = f"  {speed:.1f} rounds/s  ETA {left:.0f} s" if speed else ""
            print(f"round {round}/{self.rounds}  {self.figures}{eta}", file=sys.stderr, flush=True)


def figures(record: Record) -> str:
    """The few figures of a record that a person watches."""
    shown = {"upper_loss": "upper {:.3g}", "lower_loss": "lower {:.3g}", "test_accuracy": "accuracy {:.2%}"}
    shown |= {"hypergradient_norm_sq": "‖∇Φ‖² {:.3g}", "cleaning_auc": "AUC {:.2f}"}
    return "  ".join(text.format(record[key]) for key, text in shown.items() if record.get(key) is not None)
