"""A study from its first sweep to its last, with MLflow kept up to date; what came out is judged elsewhere."""

import sys
from collections.abc import Sequence
from typing import NamedTuple

from fedmbo_ray.config.overrides import Override
from fedmbo_ray.studies.plans import STUDIES, StudyContext
from fedmbo_ray.studies.questions import QUESTIONS
from fedmbo_ray.studies.study_run import StudyRun
from fedmbo_ray.sweeps.continuation import continued_with
from fedmbo_ray.sweeps.preflight import check_metric, nodes, require_place
from fedmbo_ray.sweeps.schema import SweepPlan
from fedmbo_ray.tracking.tracked_sweep import run_tracked


class Swept(NamedTuple):
    """What has become of the sweeps of a study."""

    failed: int  # trials
    tracking_uri: str | None


def run_sweeps(
    run: StudyRun, scale: str, overrides: Sequence[Override], only: Sequence[str] = (), shown: bool = True
) -> Swept:
    """Run what is left of a study's sweeps, or of some of them."""
    wanted, swept = set(only or QUESTIONS[run.name].sweeps), Swept(0, None)
    for part, planned in STUDIES[run.name](StudyContext(run.folder, scale, list(overrides))):
        if part in wanted:
            run.folder.begin(run.name, scale)
            if shown:
                print(f"{run.name}: {part}", file=sys.stderr, flush=True)
            failed = run_part(run, part, in_experiment(planned, run.name), shown)
            wanted, swept = wanted - {part}, Swept(swept.failed + failed, planned.tune.tracking_uri)
        if not wanted:  # what comes later may build on sweeps that were not asked for
            break
    return swept


def in_experiment(sweep: SweepPlan, name: str) -> SweepPlan:
    return sweep._replace(tune=sweep.tune.model_copy(update={"experiment": name}))


def run_part(run: StudyRun, part: str, sweep: SweepPlan, shown: bool = True) -> int:
    """Run what is left of a sweep; returns how many of its trials have failed."""
    folder = run.folder.sweep(part)
    if folder.has_sweep():
        sweep = continued_with(folder, sweep)
    else:
        check_metric(sweep)
    require_place(sweep, nodes())
    from fedmbo_ray.runs.driver import start_ray  # takes seconds to import

    start_ray()  # once for all sweeps
    return run_tracked(sweep, folder, run.command, run, shown).failed
