"""Progress of a run: a live bar at a terminal or in a notebook, a line every few seconds elsewhere; on stderr."""

import sys
import time
from importlib.util import find_spec
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from fedmbo_ray.runs.limits import Limits
from fedmbo_ray.runs.records import Record

SECONDS_BETWEEN_LINES = 5.0


def watched() -> bool:
    """Whether a user watches, in a terminal or a notebook."""
    console = Console(stderr=True)
    return console.is_terminal or console.is_jupyter


class RunProgress:
    """Shows how far a run is, and the figures of its last record; a resumed run begins at a round of its own."""

    def __init__(self, limits: Limits, begin: int = 0) -> None:
        self.limits, self.begin = limits, begin
        # Round, share and time of the first update.
        self.first: tuple[int, float, float] | None = None
        self.figures = ""
        self.updated = 0.0
        self.last_line = -SECONDS_BETWEEN_LINES
        console = Console(stderr=True)
        texts = [TextColumn(f"{{task.fields[{name}]}}") for name in ("rounds", "figures", "speed")]
        self.bar = Progress(texts[0], BarColumn(bar_width=10), *texts[1:], TimeRemainingColumn(), console=console)
        # In a notebook a live bar is a widget.
        self.live = console.is_terminal or (console.is_jupyter and find_spec("ipywidgets") is not None)
        self.task = self.bar.add_task("", total=1.0, rounds="", figures="", speed="")

    def __enter__(self) -> "RunProgress":
        if self.live:
            self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.live:
            self.bar.stop()

    def show(self, record: Record) -> None:
        self.figures = figures(record)
        if record["round"] < self.begin and "status" not in record:
            return  # made before the resume
        self._update(record["round"], self.limits.share(record), ending="status" in record)

    def tick(self, round: int, share: float) -> None:
        """After a round without a record; before the first record there is nothing to show."""
        if self.figures and share < 1 and time.monotonic() - self.updated > 0.2:
            self._update(round, share)

    def say(self, line: str) -> None:
        """Print a line; it appears above the bar if there is one."""
        self.bar.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _update(self, round: int, share: float, ending: bool = False) -> None:
        now = self.updated = time.monotonic()
        self.first = self.first or (round, share, now)
        seconds = now - self.first[2]
        speed = (round - self.first[0]) / seconds if seconds else 0.0
        rounds = self._rounds(round, share)
        if self.live:
            self.bar.update(self.task, completed=share, rounds=rounds, figures=self.figures, speed=f"{speed:.1f}/s")
        elif now - self.last_line >= SECONDS_BETWEEN_LINES or ending:
            self.last_line = now
            left = seconds * (1 - share) / (share - self.first[1]) if share > self.first[1] else 0.0
            eta = f"  {speed:.1f} rounds/s  ETA {left:.0f} s" if speed else ""
            print(f"round {rounds}  {self.figures}{eta}", file=sys.stderr, flush=True)

    def _rounds(self, round: int, share: float) -> str:
        """ "30/200" or, where a budget may end the run, "30 (15 %)"."""
        known = self.limits.amounts.get("rounds") if len(self.limits.amounts) == 1 else None
        return f"{round} ({share:.0%})" if known is None else f"{round}/{known}"


def figures(record: Record) -> str:
    """The few figures of a record that a person watches."""
    shown = {"upper_loss": "upper {:.3g}", "lower_loss": "lower {:.3g}", "test_accuracy": "accuracy {:.2%}"}
    shown |= {"hypergradient_norm_sq": "‖∇Φ‖² {:.3g}", "cleaning_auc": "AUC {:.2f}"}
    return "  ".join(text.format(record[key]) for key, text in shown.items() if record.get(key) is not None)
