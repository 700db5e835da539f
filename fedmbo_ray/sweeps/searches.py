"""Where the points of a sweep come from: all known beforehand, or proposed one after the other."""

import json
from collections import Counter
from typing import Annotated, Any, Protocol

from fedmbo_ray.registry import Component, ConfigError, Registry, settings
from fedmbo_ray.rng import stream
from fedmbo_ray.sweeps.dimensions import Dimension, Point, grid


class Search(Protocol):
    def points(self, dims: list[Dimension], samples: int, seed: int) -> list[Point] | None:
        """The points; None if they are proposed by what `proposer` makes."""
        ...

    def proposer(self, space: dict[str, Any], mode: str, seed: int, known: list[dict[str, Any]]) -> Any:
        """A searcher of Ray Tune's for `score` on a space of its own domains, which begins with the known points."""
        ...


class _Known:
    def proposer(self, space: dict[str, Any], mode: str, seed: int, known: list[dict[str, Any]]) -> Any:
        return None


@settings
class Grid(_Known):
    """Every combination of the values; nothing is drawn."""

    def points(self, dims: list[Dimension], samples: int, seed: int) -> list[Point]:
        drawn = next((each for each in dims if not each.counted), None)
        if drawn is not None:
            raise ConfigError(f"search=grid goes through lists ({{grid: […]}}), but {drawn.path} is {drawn.kind!r}")
        return grid(dims, 1, stream(seed, "search"))


@settings
class Random(_Known):
    """`samples` independent draws; with each, every combination of what is given as a grid."""

    def points(self, dims: list[Dimension], samples: int, seed: int) -> list[Point]:
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

    def proposer(self, space: dict[str, Any], mode: str, seed: int, known: list[dict[str, Any]]) -> Any:
        from ray.tune.search.optuna import OptunaSearch

        proposed: Counter[str] = Counter()

        class Counting(OptunaSearch):
            """Says with every point how often it was proposed before."""

            def suggest(self, trial_id: str) -> Any:
                config = super().suggest(trial_id)
                if not isinstance(config, dict):
                    return config
                point = json.dumps(config["point"], sort_keys=True)
                proposed[point] += 1
                return {**config, "before": proposed[point] - 1}

        # With the seed alone it would make the proposals that are known already once more.
        return Counting(space, "score", mode, points_to_evaluate=known or None, seed=seed + len(known))


SEARCHES = Registry("search", "searches", ("points", "proposer"), {"grid": Grid, "random": Random, "optuna": Optuna})

AnySearch = Annotated[Search, Component(SEARCHES)]
