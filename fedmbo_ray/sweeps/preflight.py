"""What is checked before a sweep starts: its data are there, its metric exists, the cluster has room for a trial."""

from contextlib import closing

from fedmbo_ray.backends.ray.placement import Resources, placeable, total
from fedmbo_ray.core.errors import ConfigError, choices
from fedmbo_ray.runs.loop import run
from fedmbo_ray.sweeps.schema import SweepPlan
from fedmbo_ray.sweeps.space import corners


def check_metric(sweep: SweepPlan) -> None:
    """Build the first point's run and look at its first record; raises ConfigError if it has no such metric."""
    config = sweep.config(next(corners(sweep.dims)))
    in_process = config.model_copy(update={"clients": config.clients.model_copy(update={"backend": "in_process"})})
    with closing(run(in_process)) as records:  # type: ignore[type-var]
        record = next(records)
    known = [key for key, value in record.items() if isinstance(value, int | float | None)]
    if sweep.tune.metric not in known:
        raise ConfigError(
            f"must be a figure of a record, but got {sweep.tune.metric!r}; {choices(sweep.tune.metric, known)}",
            "tune",
            "metric",
        )


def nodes() -> list[Resources]:
    """What each node of the cluster has, or would have if it were started here."""
    from fedmbo_ray.runs.driver import nodes_at_hand  # Ray takes seconds to import

    return nodes_at_hand()


def require_place(sweep: SweepPlan, have: list[Resources]) -> None:
    """Raise a ConfigError if some trial asks for more than the cluster can ever have."""
    varies = any(each.path.startswith("clients.") for each in sweep.dims)
    for point in sweep.examples() if varies else corners(sweep.dims):
        bundles = sweep.bundles(sweep.config(point))
        if not placeable(bundles, have):
            raise ConfigError(
                f"a trial asks for {asked(bundles)}, which must fit the cluster, but it has "
                f"{total(have, *sweep.tune.resources)}"
            )


def asked(bundles: list[Resources]) -> str:
    """What a trial asks for, in words."""
    own, *actors = [" and ".join(f"{amount:g} {name}" for name, amount in each.items()) for each in bundles]
    return (own or "nothing") + (f", and {len(actors)} client actors of {actors[0]} each" if actors else "")
