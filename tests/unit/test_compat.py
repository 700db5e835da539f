"""Private parts of other packages: these tests fail when one of them moves."""

import inspect
import signal
import sys
from types import SimpleNamespace

import pytest
import torch

from fedmbo_ray.backends.ray.placement import HEAD, within_reach
from fedmbo_ray.core.compat import (
    plain_attention,
    pulled_back,
    ray_may_be_on_loopback,
    ray_prints_nothing,
    ray_processes,
    ray_reads_authentication,
    ray_starts_without_handler,
    requests_waiting,
    trials_need_no_environment,
    writes,
)
from fedmbo_ray.core.process_state import held_back


def test_torch_counts_what_is_written_to_a_tensor() -> None:
    tensor = torch.zeros(4)
    before = writes(tensor)
    assert tensor.sum() == 0
    assert writes(tensor) == before
    tensor += 1
    tensor.view(2, 2)[0] = 3
    tensor.detach().mul_(2)
    assert writes(tensor) == before + 3


def test_a_gradient_is_pulled_back_as_torch_does_it() -> None:
    def parts() -> list[torch.Tensor]:
        features = torch.tanh(inputs @ x[:12].view(4, 3) + x[12:])
        return [features, features.sum(-1), features]

    inputs, x = torch.randn(5, 4), torch.randn(15, requires_grad=True)
    gradients = [torch.randn(5, 3), torch.randn(5), torch.randn(5, 3)]
    expected = torch.autograd.grad(parts(), x, gradients)[0]
    given = parts()
    with torch.no_grad():
        assert torch.equal(pulled_back(given, gradients, x), expected)
    with pytest.raises(RuntimeError, match="shape"):
        pulled_back(parts(), [gradients[1], *gradients[1:]], x)
    with pytest.raises(RuntimeError, match="not have been used"):
        pulled_back([inputs.requires_grad_()], [torch.ones(5, 4)], x)


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


def test_ray_takes_loopback_at_its_word_while_it_is_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray._private import ray_constants, services

    monkeypatch.setattr(services, "node_ip_address_from_perspective", lambda address: "192.0.2.1")
    assert services.resolve_ip_for_localhost("127.0.0.1") == "192.0.2.1"
    with ray_may_be_on_loopback():
        assert services.resolve_ip_for_localhost("127.0.0.1") == "127.0.0.1"
    assert ray_constants.ENABLE_RAY_CLUSTER


def test_ray_leaves_sigterm_as_it_is_while_it_is_told_to() -> None:
    from ray._private import utils, worker

    before = signal.getsignal(signal.SIGTERM)
    with ray_starts_without_handler():
        utils.set_sigterm_handler(lambda number, frame: None)
    assert signal.getsignal(signal.SIGTERM) is before
    assert utils.set_sigterm_handler.__module__ == utils.__name__
    assert "ray._private.utils.set_sigterm_handler(" in inspect.getsource(worker.init)


def test_ray_starts_processes_in_a_way_that_runs_what_python_registers_for_forks() -> None:
    from ray._private.services import start_ray_process

    program = "import signal, sys; sys.exit(signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, []))"
    with held_back(signal.SIGTERM):
        started = start_ray_process([sys.executable, "-c", program], "probe", fate_share=False)
    assert started.process.wait() == 0


def test_trials_get_no_variables_of_their_own() -> None:
    from ray.tune.execution.class_cache import _ActorClassCache

    class Trainable:
        pass

    with trials_need_no_environment():
        inside = _ActorClassCache().get(Trainable)._default_options["runtime_env"]
    outside = _ActorClassCache().get(Trainable)._default_options["runtime_env"]
    assert (inside, outside) == ({}, {"env_vars": {"PL_DISABLE_FORK": "1"}})


def test_ray_reads_its_token_again_when_it_is_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray._raylet import AuthenticationMode, AuthenticationTokenLoader, get_authentication_mode

    for token in ("a" * 64, "b" * 64):
        monkeypatch.setenv("RAY_AUTH_MODE", "token")
        monkeypatch.setenv("RAY_AUTH_TOKEN", token)
        ray_reads_authentication()
        assert get_authentication_mode() == AuthenticationMode.TOKEN
        assert token in AuthenticationTokenLoader.instance().get_raw_token()
    monkeypatch.undo()
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    ray_reads_authentication()
    assert get_authentication_mode() == AuthenticationMode.DISABLED


def test_ray_starts_its_printing_thread_by_a_name_that_can_be_replaced() -> None:
    from ray._private import worker

    before = worker.listen_error_messages
    assert "listen_error_messages" in worker.connect.__wrapped__.__code__.co_names
    with ray_prints_nothing():
        assert worker.listen_error_messages is not before
    assert worker.listen_error_messages is before


def test_ray_knows_the_processes_that_it_started_here(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray._private import ray_constants, worker
    from ray._private.node import Node

    assert ray_processes() == []
    for start, kind in ((Node.start_gcs_server, "GCS_SERVER"), (Node.start_raylet, "RAYLET")):
        assert f"self.all_processes[ray_constants.PROCESS_TYPE_{kind}] = [" in inspect.getsource(start)
    node = Node.__new__(Node)
    node.all_processes = {
        kind: [SimpleNamespace(process=SimpleNamespace(pid=pid))]
        for pid, kind in enumerate((ray_constants.PROCESS_TYPE_RAYLET, ray_constants.PROCESS_TYPE_GCS_SERVER, "log"))
    }
    monkeypatch.setattr(worker, "_global_node", node)
    assert ray_processes() == [("gcs_server", 1), ("raylet", 0)]


def test_ray_knows_what_waits_for_room() -> None:
    from ray._private.worker import global_worker
    from ray.autoscaler.v2 import sdk
    from ray.core.generated.autoscaler_pb2 import ClusterResourceState, ResourceRequest, ResourceRequestByCount

    request = ResourceRequestByCount(request=ResourceRequest(resources_bundle={"CPU": 0.5}), count=2)
    state = ClusterResourceState(pending_resource_requests=[request])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(global_worker, "gcs_client", None, raising=False)
        patch.setattr(sdk, "get_cluster_resource_state", lambda client: state)
        assert requests_waiting() == [({"CPU": 0.5}, 2)]
