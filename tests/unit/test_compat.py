"""Private parts of other packages: these tests fail when one of them moves."""

import torch

from fedmbo_ray.backends.ray.placement import HEAD, within_reach
from fedmbo_ray.core.compat import writes


def test_torch_counts_what_is_written_to_a_tensor() -> None:
    tensor = torch.zeros(4)
    before = writes(tensor)
    assert tensor.sum() == 0
    assert writes(tensor) == before
    tensor += 1
    tensor.view(2, 2)[0] = 3
    tensor.detach().mul_(2)
    assert writes(tensor) == before + 3


def test_ray_describes_what_an_autoscaler_may_start() -> None:
    from ray._private.state import state
    from ray.core.generated.autoscaler_pb2 import ClusterConfig, NodeGroupConfig

    assert callable(state.get_cluster_config)
    config = ClusterConfig(node_group_configs=[NodeGroupConfig(resources={"CPU": 16}, max_count=2)])
    head = {"Alive": True, "Resources": {"CPU": 4.0, HEAD: 1.0}}
    assert within_reach([head], config) == [head["Resources"], {"CPU": 16}, {"CPU": 16}]
