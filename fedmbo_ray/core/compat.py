"""Private parts of torch and Ray that this package relies on; each has a test that fails when it moves."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # whoever asks for these has imported the library already
    from torch import Tensor


class NodeGroup(Protocol):
    """Nodes that an autoscaler may start: what each has, and how many at most."""

    resources: Mapping[str, float]
    max_count: int


class Autoscaling(Protocol):
    """What an autoscaler may start."""

    node_group_configs: Sequence[NodeGroup]


def writes(tensor: "Tensor") -> int:
    """How many times a tensor, or another view of its memory, has been written to in place."""
    return tensor._version


@contextmanager
def plain_attention() -> Iterator[None]:
    """In this context, torch computes attention by plain products, which can be vmapped and differentiated twice."""
    from torch.backends import cuda  # where the switch is, also for CPUs

    before = cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled()
    cuda.enable_flash_sdp(False)
    cuda.enable_mem_efficient_sdp(False)
    try:
        yield
    finally:
        cuda.enable_flash_sdp(before[0])
        cuda.enable_mem_efficient_sdp(before[1])


def autoscaling() -> Autoscaling | None:
    """What the autoscaler of the Ray cluster that this process is connected to may start; None without one."""
    from ray._private.state import state  # nothing public tells it

    return state.get_cluster_config()


@contextmanager
def ray_may_be_on_loopback() -> Iterator[None]:
    """In this context, `ray.init(_node_ip_address="127.0.0.1")` is taken at its word.

    Otherwise Ray replaces it by an address that other machines can reach, and listens on all interfaces.
    """
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def ray_reads_authentication() -> None:
    """Make Ray read $RAY_AUTH_MODE and the token again, which it does only once; Ray must not be running."""
    from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]  # not in its stubs

    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()
