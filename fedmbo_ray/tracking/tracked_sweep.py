"""A sweep from its first trial to its last, with MLflow kept up to date."""

import shlex
import sys
from contextlib import nullcontext

from rich.console import Console

from fedmbo_ray.core.errors import RunFailed
from fedmbo_ray.sweeps.folder import SweepFolder
from fedmbo_ray.sweeps.proof import prove
from fedmbo_ray.sweeps.ranking import BestTrial, finish, ranked, ranking_table, seconds_of
from fedmbo_ray.sweeps.schema import SweepPlan
from fedmbo_ray.tracking.background import BackgroundTracking, wait_for_mlflow, where_to_look
from fedmbo_ray.tracking.sweep_tracker import Above, SweepTracker


def run_tracked(
    sweep: SweepPlan,
    folder: SweepFolder,
    command: str,
    study: Above | None = None,
    shown: bool = True,
    track: bool = True,
) -> BestTrial:
    """Run what is left of a sweep, recorded in MLflow if `track`; returns its best trial. In a study it says less."""
    from fedmbo_ray.sweeps.tuner import run_trials  # Ray takes seconds to import

    console = Console(stderr=True, quiet=not shown)
    tracker = SweepTracker(sweep, folder, command, study) if track else None
    with folder.claimed(sweep.plain()):
        prove(sweep, folder)
        with BackgroundTracking(tracker) if tracker else nullcontext() as background:
            run_trials(sweep, folder, console)
            best = finish(sweep, folder)
            if study is None and shown:
                say_what_came_out(sweep, folder, console)
            if tracker is not None and background is not None:
                conclude_sweep(tracker, background, study, shown)
    if best is None:
        raise RunFailed("no trial of the sweep has a score: all have diverged or failed")
    return best


def conclude_sweep(tracker: SweepTracker, background: BackgroundTracking, study: Above | None, shown: bool) -> None:
    """Send the rest to MLflow, with what theory predicts in a study, and say where it is."""
    if not background.conclude():
        said = f"MLflow at {tracker.uri} can't be reached: continue the sweep in {tracker.folder.path} (resume)"
        print(said, file=sys.stderr)
    elif study is not None:
        wait_for_mlflow(lambda: study.predict(tracker), tracker.uri)
    elif shown:
        print(where_to_look(tracker), file=sys.stderr)


def say_what_came_out(sweep: SweepPlan, folder: SweepFolder, console: Console) -> None:
    console.print(ranking_table(ranked(folder, sweep.tune), sweep.tune, 5))
    print(f"the trials' own time adds up to {seconds_of(folder):.0f} s", file=sys.stderr)
    if folder.best_file.exists():
        print(f"best config: fedmbo run {shlex.quote(str(folder.best_file))}", file=sys.stderr)
