"""Progress of a sweep: a live table on a terminal, short lines elsewhere; always on stderr."""

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table

from fedmbo_ray.runs.limits import Limits
from fedmbo_ray.sweeps.folder import STATUSES, SweepFolder, TrialFolder
from fedmbo_ray.sweeps.ranking import ranked
from fedmbo_ray.sweeps.rungs import rounds_in_all
from fedmbo_ray.sweeps.schema import SweepPlan

SECONDS_BETWEEN_LINES = 10.0
ROWS = 12
WAITING = "waiting"  # at a rung, for the other trials
EARLY = 0.02  # the share of a sweep before which its rate says little: starting takes seconds


class SweepProgress:
    def __init__(self, sweep: SweepPlan, folder: SweepFolder, total: int, console: Console) -> None:
        self.sweep, self.folder, self.total = sweep, folder, total
        self.rounds: dict[str, int | None] = {}  # for each trial, since they may differ
        self.waits, rounds = sweep.tune.scheduler.waits, rounds_in_all(sweep, total)
        # The work of the sweep, and how much of it each trial has done, in complete runs.
        self.whole = total if rounds is None or sweep.rounds is None else rounds / sweep.rounds
        self.shares = {trial.name: self._share(trial) for trial in folder.trials()}
        self.before = sum(self.shares.values())
        before = [each for each in ranked(folder, sweep.tune) if self.waits or each.status in STATUSES]
        self.status = {each.name: each.status if each.status in STATUSES else WAITING for each in before}
        self.rows = {each.name: (each.round, each.score) for each in before if each.score is not None}
        self.started, self.shown = time.monotonic(), 0.0
        self.console = console
        self.live = Live(console=console, auto_refresh=False) if console.is_terminal and not console.quiet else None

    def __enter__(self) -> "SweepProgress":
        self._say(f"{self.total} trials, {self.done()} of them done before; folder: {self.folder.path}")
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.live is not None:
            self.live.stop()

    def heard(self, name: str, round: int, share: float, score: float) -> None:
        self.rows[name], self.shares[name] = (round, score), share
        if self.status.get(name) == WAITING:
            del self.status[name]

    def rounds_of(self, name: str, round: int) -> str:
        """ "30/200", or "30" where only a budget ends a trial."""
        if name not in self.rounds:
            self.rounds[name] = self.sweep.config(self.folder.trial(name).point).rounds
        return str(round) if self.rounds[name] is None else f"{round}/{self.rounds[name]}"

    def ended(self, name: str, status: str) -> None:
        self.status[name] = status
        if status in STATUSES and not self.waits:  # the rest of the trial will not be run
            self.shares[name] = 1.0
        if self.live is None and status in STATUSES:
            round, score = self.rows.get(name, (0, float("nan")))
            label = self.folder.trial(name).label
            self._say(f"trial {name} {status} in round {round}: {self.sweep.tune.metric} {score:.4g} ({label})")

    def decided(self) -> None:
        """Check which of the waiting trials have been stopped."""
        for name in [name for name, status in self.status.items() if status == WAITING]:
            if (status := self.folder.trial(name).status) in STATUSES:
                self.ended(name, status)

    def refresh(self) -> None:
        now = time.monotonic()
        if now - self.shown < (0.5 if self.live is not None else SECONDS_BETWEEN_LINES):
            return
        self.shown = now
        if self.live is not None:
            self.live.update(self.table(), refresh=True)
        elif self.rows:
            self._say(self.line())

    def done(self) -> int:
        """The number of trials that have ended."""
        return sum(status in STATUSES for status in self.status.values())

    def line(self) -> str:
        running = sum(name not in self.status for name in self.rows)
        waiting = sum(status == WAITING for status in self.status.values())
        wait = f", {waiting} waiting" if waiting else ""
        best = self._sorted()[:1]
        lead = f"; best {self.sweep.tune.metric} so far {best[0][1][1]:.4g} (trial {best[0][0]})" if best else ""
        return f"{self.done()}/{self.total} trials done, {running} running{wait}{lead}{self.eta()}"

    def eta(self) -> str:
        """The longest time that the rest may take; it is shorter if trials are stopped early."""
        seconds, left = time.monotonic() - self.started, self.whole - self.before
        share = (sum(self.shares.values()) - self.before) / left if left > 0 else 0.0
        if share < EARLY:
            return ""
        return f"; ETA {seconds * (1 - share) / share:.0f} s"

    def table(self) -> Table:
        table = Table("trial", "point", "round", self.sweep.tune.metric, "status", title=self.line())
        running = [each for each in self._sorted() if each[0] not in self.status]
        others = [each for each in self._sorted() if each[0] in self.status]
        for name, (round, score) in (running + others)[:ROWS]:
            label, status = self.folder.trial(name).label, self.status.get(name, "running")
            table.add_row(name, label, self.rounds_of(name, round), f"{score:.4g}", status)
        return table

    def _share(self, trial: TrialFolder) -> float:
        """How much of a run a trial has done; without rungs, a trial that has ended counts as a complete run."""
        if trial.status in STATUSES and not self.waits:
            return 1.0
        lasts, limits = trial.lasts(), Limits.of(self.sweep.config(trial.point))
        return min((limits.share(last) for last in lasts), default=0.0)

    def _say(self, line: str) -> None:
        if not self.console.quiet:
            print(line, file=sys.stderr, flush=True)

    def _sorted(self) -> list[tuple[str, tuple[int, float]]]:
        sign = 1 if self.sweep.tune.mode == "min" else -1
        return sorted(self.rows.items(), key=lambda item: sign * item[1][1])
