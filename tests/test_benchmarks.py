"""The benchmarks run and compare equals; how fast the machine is, no test can say."""

from tasks import tiny_config

from benchmarks.backends import measure
from fedmbo_ray.backends.ray_actors import RayActors
from fedmbo_ray.building import build_task
from fedmbo_ray.experiment import in_process


def test_backends_are_measured_on_the_same_bits(cluster) -> None:
    config = tiny_config("hyper_representation")
    task = build_task(config)
    pool = RayActors(*task[:2], actors=2, cpus=0.5)
    try:
        medians = measure({"in_process": in_process(task), "ray": pool}, config, task, rounds=4)
    finally:
        pool.close()
    assert set(medians) == {"in_process", "ray"}
    assert all(seconds > 0 for seconds in medians.values())
