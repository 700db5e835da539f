"""Private parts of torch and Ray that this package relies on; each has a test that fails when it moves."""

from collections.abc import Mapping, Sequence
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


def autoscaling() -> Autoscaling | None:
    """What the autoscaler of the Ray cluster that this process is connected to may start; None without one."""
    from ray._private.state import state  # nothing public tells it

    return state.get_cluster_config()
