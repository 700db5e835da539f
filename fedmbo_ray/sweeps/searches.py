"""Where the points of a sweep come from: all known beforehand, or proposed one after the other."""

import json
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Protocol

from fedmbo_ray.core.components import Component
from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.core.registry import Registry
from fedmbo_ray.core.rng import stream
from fedmbo_ray.core.settings import settings
from fedmbo_ray.sweeps.space import Dimension, SweepPoint, grid

if TYPE_CHECKING:
    from ray.tune.search import Searcher

    from fedmbo_ray.sweeps.space import Space


class Search(Protocol):
    def points(self, dims: list[Dimension], samples: int, seed: int) -> list[SweepPoint] | None:
        """The points; None if they are proposed by what `proposer` makes."""
        ...

    def proposer(self, space: "Space", mode: str, seed: int, known: list[SweepPoint]) -> "Searcher | None":
        """A searcher of Ray Tune's for `score` on a space of its own domains, which begins with the known points."""
        ...


class _Known:
    def proposer(self, space: "Space", mode: str, seed: int, known: list[SweepPoint]) -> "Searcher | None":
        return None


@settings
class Grid(_Known):
    """Every combination of the values; nothing is drawn."""

    def points(self, dims: list[Dimension], samples: int, seed: int) -> list[SweepPoint]:
        drawn = next((each for each in dims if not each.counted), None)
        if drawn is not None:
            raise ConfigError(f"search=grid needs lists ({{grid: […]}}), but {drawn.path} is {drawn.kind!r}")
        return grid(dims, 1, stream(seed, "search"))


@settings
class Random(_Known):
    """`samples` independent draws; with each, every combination of what is given as a grid."""

    def points(self, dims: list[Dimension], samples: int, seed: int) -> list[SweepPoint]:
        return grid(dims, samples, stream(seed, "search"))


@settings
class Optuna:
    """`samples` points, each proposed by Optuna (TPE) from what the finished ones scored."""

    def points(self, dims: list[Dimension], samples: int, seed: int) -> None:
        counted = next((each for each in dims if each.counted), None)
        if counted is not None:
            raise ConfigError(
                f"search=optuna needs choice in place of {counted.kind}, but {counted.path} is a {counted.kind}"
            )

    def proposer(self, space: "Space", mode: str, seed: int, known: list[SweepPoint]) -> "Searcher | None":
        from ray.tune.search.optuna import OptunaSearch

        proposed: Counter[str] = Counter()

        class Counting(OptunaSearch):
            """Says with every point how often it was proposed before."""

            def suggest(self, trial_id: str) -> object:
                config = super().suggest(trial_id)
                if not isinstance(config, dict):
                    return config
                point = json.dumps(config["point"], sort_keys=True)
                proposed[point] += 1
                return {**config, "before": proposed[point] - 1}

        # With the seed alone it would make the proposals that are known already once more.
        return Counting(space, "score", mode, points_to_evaluate=known or None, seed=seed + len(known))


SEARCHES = Registry("search", "searches", Search, {"grid": Grid, "random": Random, "optuna": Optuna})

AnySearch = Annotated[Search, Component(SEARCHES)]
