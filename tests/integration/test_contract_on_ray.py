"""Every registered method on Ray: one actor, three actors, the same bits."""

from typing import Any

import pytest
from test_contract import ONCE, config_for, final_state, same

from fedmbo_ray.backends.ray.pool import RayActors
from fedmbo_ray.runs.build import build_task


@pytest.fixture(scope="module")
def pool(cluster):
    """Ray backends of one and of three actors for a task, kept for the next test with the same one."""
    made: dict[Any, tuple[RayActors, ...]] = {}

    def get(config: Any) -> tuple[RayActors, ...]:
        key = (type(config.problem), config.clients.num_clients)
        if key not in made:
            task = build_task(config)
            made[key] = tuple(RayActors(task, actors, cpus=0.5) for actors in (1, 3))
        return made[key]

    yield get
    for pools in made.values():
        for each in pools:
            each.close()


@pytest.mark.parametrize(("name", "problem"), ONCE)
def test_ray_gives_the_bits_of_in_process(name: str, problem: str, pool) -> None:
    config = config_for(name, problem)
    here = final_state(config)
    for backend in pool(config):
        assert same(here, final_state(config, backend))
