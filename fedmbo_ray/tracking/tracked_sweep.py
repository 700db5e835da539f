"""A sweep from its first trial to its last, with MLflow kept up to date."""

import shlex
import sys

from rich.console import Console

from fedmbo_ray.core.errors import RunFailed
from fedmbo_ray.sweeps.folder import SweepFolder
from fedmbo_ray.sweeps.ranking import BestTrial, finish, ranked, ranking_table, seconds_of
from fedmbo_ray.sweeps.schema import SweepPlan
from fedmbo_ray.tracking.background import BackgroundTracking, wait_for_mlflow, where_to_look
from fedmbo_ray.tracking.sweep_tracker import Above, SweepTracker


def run_tracked(sweep: SweepPlan, folder: SweepFolder, command: str, study: Above | None = None) -> BestTrial:
    """Run what is left of a sweep; returns its best trial. As a part of a study it says less."""
    from fedmbo_ray.sweeps.tuner import run_trials  # Ray takes seconds to import

    console, tracker = Console(stderr=True), SweepTracker(sweep, folder, command, study)
    with folder.claimed(sweep.plain()), BackgroundTracking(tracker) as background:
        run_trials(sweep, folder, console)
        best = finish(sweep, folder)
        if study is None:
            say_what_came_out(sweep, folder, console)
        if not background.conclude():
            said = f"MLflow at {tracker.uri} can't be reached: continue with --out {folder.path} --resume"
            print(said, file=sys.stderr)
        elif study is None:
            print(where_to_look(tracker), file=sys.stderr)
        else:
            wait_for_mlflow(lambda: study.predict(tracker), tracker.uri)
    if best is None:
        raise RunFailed("no trial of the sweep has a score: all have diverged or failed")
    return best


def say_what_came_out(sweep: SweepPlan, folder: SweepFolder, console: Console) -> None:
    console.print(ranking_table(ranked(folder, sweep.tune), sweep.tune, 5))
    print(f"the trials' own time adds up to {seconds_of(folder):.0f} s", file=sys.stderr)
    if folder.best_file.exists():
        print(f"best config: fedmbo run {shlex.quote(str(folder.best_file))}", file=sys.stderr)
