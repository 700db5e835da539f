"""Private parts of other packages: these tests fail when one of them moves."""

import torch

from fedmbo_ray.backends.ray.placement import HEAD, within_reach
from fedmbo_ray.core.compat import plain_attention, writes


def test_torch_counts_what_is_written_to_a_tensor() -> None:
    tensor = torch.zeros(4)
    before = writes(tensor)
    assert tensor.sum() == 0
    assert writes(tensor) == before
    tensor += 1
    tensor.view(2, 2)[0] = 3
    tensor.detach().mul_(2)
    assert writes(tensor) == before + 3


def test_attention_can_be_vmapped_and_differentiated_twice() -> None:
    def squared(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(x, x, x).square().sum()

    x = torch.randn(3, 1, 4, 2, dtype=torch.float64)
    before = torch.backends.cuda.flash_sdp_enabled()
    with plain_attention():
        second = torch.func.vmap(torch.func.hessian(squared))(x)
    assert torch.backends.cuda.flash_sdp_enabled() == before
    v = torch.randn_like(x[0])
    slopes = [torch.func.grad(squared)(x[0] + sign * 1e-5 * v) for sign in (1, -1)]
    product = torch.tensordot(second[0], v, dims=3)
    assert torch.allclose(product, (slopes[0] - slopes[1]) / 2e-5, rtol=1e-5, atol=1e-6)


def test_ray_describes_what_an_autoscaler_may_start() -> None:
    from ray._private.state import state
    from ray.core.generated.autoscaler_pb2 import ClusterConfig, NodeGroupConfig

    assert callable(state.get_cluster_config)
    config = ClusterConfig(node_group_configs=[NodeGroupConfig(resources={"CPU": 16}, max_count=2)])
    head = {"Alive": True, "Resources": {"CPU": 4.0, HEAD: 1.0}}
    assert within_reach([head], config) == [head["Resources"], {"CPU": 16}, {"CPU": 16}]
