"""Private parts of torch and Ray that this package relies on; each has a test that fails when it moves."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # whoever asks for these has imported the library already
    from ray._private.node import Node
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


def pulled_back(parts: Sequence["Tensor"], gradients: Sequence["Tensor"], x: "Tensor") -> "Tensor":
    """`torch.autograd.grad(parts, x, gradients)`, which would import sympy for a third of a second to check shapes."""
    from torch.autograd import Variable

    run, ends = Variable._execution_engine.run_backward, (tuple(parts), tuple(gradients))
    gradient: Tensor = run(*ends, False, False, (x,), allow_unreachable=False, accumulate_grad=False)[0]
    return gradient


def import_export() -> None:
    """Import what `torch.export.export` would import when it is first called, which takes more than a second."""
    from torch.export import _trace  # noqa: F401


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


def ray_processes() -> list[tuple[str, int]]:
    """The processes that a Ray which this process started can't do without: names and process ids.

    Empty if this process uses a Ray that was started elsewhere.
    """
    from ray._private import worker

    started = {} if worker._global_node is None else worker._global_node.all_processes
    return [(name, each.process.pid) for name in ("gcs_server", "raylet") for each in started.get(name, [])]


def requests_waiting() -> list[tuple[dict[str, float], int]]:
    """The requests for resources that have no room yet in the Ray cluster of this process, and the count of each."""
    from ray._private.worker import global_worker
    from ray.autoscaler.v2.sdk import get_cluster_resource_state

    waiting = get_cluster_resource_state(global_worker.gcs_client).pending_resource_requests
    return [(dict(each.request.resources_bundle), each.count) for each in waiting]


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


@contextmanager
def ray_starts_no_helpers() -> Iterator[None]:
    """In this context, `ray.init` starts no autoscaler, no reader of logs and no server for a dashboard that is off.

    A Ray on one machine needs none of them. It would wait for the server, although the server does not listen when the
    dashboard is off. Another program that listens at its port would receive Ray's events, with the token. So Ray's
    agents get port 0, at which nobody can listen.
    """
    from ray._private.node import Node

    starts = {"start_monitor": _no_start, "start_log_monitor": _no_start, "start_api_server": _no_dashboard}
    before = {name: getattr(Node, name) for name in starts}
    try:
        for name, start in starts.items():
            setattr(Node, name, start)
        yield
    finally:
        for name, start in before.items():
            setattr(Node, name, start)


@contextmanager
def ray_prints_nothing() -> Iterator[None]:
    """In this context, `ray.init` starts no thread that prints the errors of Ray's processes; log files have them."""
    from ray._private import worker

    before = worker.listen_error_messages
    worker.listen_error_messages = lambda worker, threads_stopped: None
    try:
        yield
    finally:
        worker.listen_error_messages = before


def _no_start(node: "Node") -> None:
    pass


def _no_dashboard(node: "Node", **options: object) -> None:
    from ray._private.ray_constants import DASHBOARD_ADDRESS, KV_NAMESPACE_DASHBOARD

    address = DASHBOARD_ADDRESS.encode()
    node.get_gcs_client().internal_kv_put(address, b"127.0.0.1:0", True, namespace=KV_NAMESPACE_DASHBOARD)


@contextmanager
def ray_starts_without_handler() -> Iterator[None]:
    """In this context, `ray.init` does not install its SIGTERM handler, which ends the process without a message."""
    from ray._private import utils

    before = utils.set_sigterm_handler
    utils.set_sigterm_handler = _no_handler
    try:
        yield
    finally:
        utils.set_sigterm_handler = before


def _no_handler(handler: object) -> None:
    pass


@contextmanager
def trials_need_no_environment() -> Iterator[None]:
    """In this context, Ray Tune sets no environment variables for trials, so that idle processes can run them.

    Otherwise Tune sets one for PyTorch Lightning; Ray then starts new processes for the trials, and does not use those
    that it started first.
    """
    from ray.tune.execution.class_cache import DEFAULT_ENV_VARS

    before = {**DEFAULT_ENV_VARS}
    DEFAULT_ENV_VARS.clear()
    try:
        yield
    finally:
        DEFAULT_ENV_VARS.update(before)


def ray_reads_authentication() -> None:
    """Make Ray read $RAY_AUTH_MODE and the token again, which it does only once; Ray must not be running."""
    from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]  # not in its stubs

    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()
