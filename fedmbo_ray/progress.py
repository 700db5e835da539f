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
        self.first: Record | None = None
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
        self.first = self.first or record
        speed = self._speed(record)
        if self.live:
            self.bar.update(self.task, completed=record["round"], figures=figures(record), speed=f"{speed:.1f}/s")
        elif time.monotonic() - self.last_line >= SECONDS_BETWEEN_LINES or "status" in record:
            self.last_line = time.monotonic()
            left = (self.rounds - record["round"]) / speed if speed else 0.0
            eta = f"  {speed:.1f} rounds/s  ETA {left:.0f} s" if speed else ""
            print(f"round {record['round']}/{self.rounds}  {figures(record)}{eta}", file=sys.stderr, flush=True)

    def _speed(self, record: Record) -> float:
        """Rounds per second since the first record shown."""
        assert self.first is not None
        seconds = record["wall_seconds"] - self.first["wall_seconds"]
        return (record["round"] - self.first["round"]) / seconds if seconds > 0 else 0.0


def figures(record: Record) -> str:
    """The few figures of a record that a person watches."""
    shown = {"upper_loss": "upper {:.3g}", "lower_loss": "lower {:.3g}", "test_accuracy": "accuracy {:.2%}"}
    shown |= {"hypergradient_norm_sq": "‖∇Φ‖² {:.3g}", "cleaning_auc": "AUC {:.2f}"}
    return "  ".join(text.format(record[key]) for key, text in shown.items() if record.get(key) is not None)
