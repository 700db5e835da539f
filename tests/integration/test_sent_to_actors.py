"""Meter and transport agree on what has been sent already; a real cluster says what its autoscaler may start."""

import pytest
import ray
import torch
from ray.core.generated.autoscaler_pb2 import ClusterConfig, NodeGroupConfig
from tasks import federation, tiny_task

from fedmbo_ray.backends.ray.messages import Connection
from fedmbo_ray.backends.ray.pool import RayActors
from fedmbo_ray.core.compat import autoscaling
from fedmbo_ray.core.rng import stream
from fedmbo_ray.data.batches import Draw

SIZE = 10_000  # large enough to be kept by the actors


def test_meter_and_transport_agree_on_what_was_sent(cluster, monkeypatch) -> None:
    task, sent, send = tiny_task("hyper_representation"), [], Connection.send
    monkeypatch.setattr(
        Connection,
        "send",
        lambda self, head, arrays: (sent.extend(each.size for each in arrays), send(self, head, arrays))[1],
    )
    pool = RayActors(task, actors=1, cpus=0.5)
    try:
        fed = federation(task, 4, backend=pool)
        clients = fed.clients(stream(0))
        cohort, v = clients.sample(), torch.ones(SIZE, dtype=torch.float64)

        def news() -> tuple[int, int]:
            """How often the vector went to the actor, and to each client, in one communication."""
            before, _ = fed.meter.floats_down, sent.clear()
            torch.testing.assert_close(clients.mean(lambda problem, batch, v: v, cohort, v, draw=Draw("train", 4)), v)
            return sent.count(SIZE), (fed.meter.floats_down - before) // (4 * SIZE)

        assert news() == (1, 1)
        assert news() == (0, 0)
        v += 1
        assert news() == (1, 1)
        v = v.clone()
        assert news() == (1, 1)
        assert news() == (0, 0)
    finally:
        pool.close()


@pytest.fixture
def growing(cluster):
    """The cluster, as if it had an autoscaler."""
    from ray._raylet import GCS_AUTOSCALER_CLUSTER_CONFIG_KEY, GCS_AUTOSCALER_STATE_NAMESPACE
    from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_put

    place = {"key": GCS_AUTOSCALER_CLUSTER_CONFIG_KEY, "namespace": GCS_AUTOSCALER_STATE_NAMESPACE}
    config = ClusterConfig(node_group_configs=[NodeGroupConfig(resources={"CPU": 16}, max_count=3)])
    _internal_kv_put(value=config.SerializeToString(), **place)
    yield
    _internal_kv_del(**place)


def test_a_cluster_says_what_its_autoscaler_may_start(growing) -> None:
    assert ray.is_initialized()
    (group,) = autoscaling().node_group_configs
    assert (dict(group.resources), group.max_count) == ({"CPU": 16}, 3)


def test_a_cluster_without_autoscaler_says_so(cluster) -> None:
    assert autoscaling() is None
