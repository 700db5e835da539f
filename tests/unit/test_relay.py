"""A relay leads to what its listing leads to, communication by communication, and costs as much."""

from typing import Any

import numpy as np
import pytest
import torch
from tasks import federation, tiny_task
from torch import Tensor

from fedmbo_ray.core.rng import stream
from fedmbo_ray.data.batches import Draw
from fedmbo_ray.federation.availability import AlwaysAvailable, Unreliable
from fedmbo_ray.federation.clients import Clients
from fedmbo_ray.federation.columns import RelayCall, Way
from fedmbo_ray.federation.draws import DRAWN_TOGETHER
from fedmbo_ray.federation.relay import Leg, Route
from fedmbo_ray.methods.hypergradients.phe import PHE
from fedmbo_ray.methods.hypergradients.phe_sum import PHESum
from fedmbo_ray.problems.base import capabilities
from fedmbo_ray.problems.hyper_representation import HyperRepresentationProblem
from fedmbo_ray.problems.oracles import grad_x_through, grad_y_upper, grads_lagrangian, hessian_yy

N, SIZE = 6, 3
VALIDATION, TRAIN = Draw("validation", SIZE), Draw("train", SIZE)


def phe(clients: Clients, x: Tensor, y: Tensor, l: float) -> Tensor:
    """Algorithm 2 as it is printed, one call for each communication."""
    cohort = clients.sample()
    depth = clients.rng.integers(N, size=len(cohort))
    p = N / l * clients.map(grad_y_upper, cohort, x, y, draw=VALIDATION)
    for step in range(1, N):
        active = np.flatnonzero(depth >= step)
        if not len(active):
            break
        cohort = clients.sample(len(active))
        active, lost = active[: len(cohort)], active[len(cohort) :]
        rows = torch.from_numpy(active)
        p[rows] -= clients.map(hessian_yy, cohort, x, y, each=p[rows], draw=TRAIN) / l
        depth[lost] = -1
    cohort = clients.sample(int((depth >= 0).sum()))
    p = p[depth >= 0][: len(cohort)]
    return clients.mean(grad_x_through, cohort, x, y, each=p, draw=(VALIDATION, TRAIN))


def phe_sum(clients: Clients, x: Tensor, y: Tensor, l: float) -> Tensor:
    p = clients.map(grad_y_upper, clients.sample(), x, y, draw=VALIDATION) / l
    v = p
    for _ in range(1, N):
        cohort = clients.sample(len(p))
        p, v = p[: len(cohort)], v[: len(cohort)]
        p = p - clients.map(hessian_yy, cohort, x, y, each=p, draw=TRAIN) / l
        v = v + p
    cohort = clients.sample(len(v))
    return clients.mean(grad_x_through, cohort, x, y, each=v[: len(cohort)], draw=(VALIDATION, TRAIN))


LISTINGS = {"phe": (PHE, phe), "phe_sum": (PHESum, phe_sum)}
OMITTING = Unreliable(dropout=0.3, straggle=0.2, dropped="omit")
PROBLEMS = ["quadratic", "hyper_representation", "hyper_cleaning", "loss_tuning"]


@pytest.mark.parametrize("availability", [AlwaysAvailable(), OMITTING], ids=["all answer", "some are omitted"])
@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("name", LISTINGS)
def test_a_relay_is_its_listing(name: str, problem: str, availability: Any) -> None:
    task, (estimator, listing) = tiny_task(problem), LISTINGS[name]
    x, y = task.problem.init(stream(0))
    l = torch.tensor(20.0, dtype=torch.float64)
    feds = [federation(task, 7, block_size=3, availability=availability) for _ in range(2)]
    for round in range(4):
        clients = [fed.clients(stream(1, round)) for fed in feds]
        found, _ = estimator(terms=N, batch_size=SIZE).estimate(clients[0], x, y, l, {})
        expected = listing(clients[1], x, y, 20.0)
        assert torch.allclose(found, expected, rtol=1e-11, atol=1e-13)
    assert feds[0].meter == feds[1].meter
    assert clients[0].rng.random() == clients[1].rng.random()


def test_all_clients_in_a_new_order_every_time() -> None:
    """As FedNest with PHE and all clients has it."""
    task = tiny_task("quadratic")
    x, y = task.problem.init(stream(0))
    clients = [federation(task, 5).clients(stream(1)) for _ in range(2)]
    chosen = [each.with_one_cohort(each.everyone(), shuffled=True) for each in clients]
    found, _ = PHE(terms=N, batch_size=SIZE).estimate(chosen[0], x, y, torch.tensor(20.0, dtype=torch.float64), {})
    assert torch.allclose(found, phe(chosen[1], x, y, 20.0), rtol=1e-12)
    assert clients[0].federation.meter == clients[1].federation.meter


def test_the_last_clients_may_upload_several_vectors() -> None:
    task = tiny_task("quadratic")
    x, y = task.problem.init(stream(0))
    clients = federation(task, 4).clients(stream(1))
    start, step = Leg(grad_y_upper, VALIDATION, lambda g: g), Leg(hessian_yy, TRAIN, lambda Hp, p: p - 0.05 * Hp)
    finish = Leg(grads_lagrangian, (VALIDATION, TRAIN))
    found: Any = clients.relay(clients.sample(), np.array([0, 2, 1, 2]), start, step, finish, x, y)
    assert [part.shape for part in found] == [x.shape, y.shape, y.shape]
    meter = clients.federation.meter
    assert meter.communications == 4
    assert meter.floats_up == 4 * len(y) + 5 * len(y) + 4 * (len(x) + 2 * len(y))


def test_columns_are_dealt_so_that_blocks_have_about_the_same_way_to_go() -> None:
    route = Route(np.array([0, 5, 1, 4, 2, 3]))
    parts = list(route.parts(2))
    assert [steps.tolist() for _, _, steps in parts] == [[5, 3, 1], [4, 2, 0]]
    assert [clients.shape for clients, _, _ in parts] == [(7, 3), (6, 3)]


def test_samples_of_several_steps_are_looked_at_together(monkeypatch: pytest.MonkeyPatch) -> None:
    task, looks = tiny_task("hyper_representation"), []
    assert capabilities(task.problem).layered
    look = HyperRepresentationProblem.lower_sees

    def counted(self: HyperRepresentationProblem, x: Tensor, batch: Any) -> Any:
        looks.append(len(batch.targets))
        return look(self, x, batch)

    monkeypatch.setattr(HyperRepresentationProblem, "lower_sees", counted)
    x, y = task.problem.init(stream(0))
    clients = federation(task, 4, block_size=64).clients(stream(1))
    PHESum(terms=N, batch_size=SIZE).estimate(clients, x, y, torch.tensor(20.0), {})
    assert looks == [4 * (N - 1), 4]  # all steps at once, then the last clients


def test_only_so_many_samples_are_drawn_together() -> None:
    """A column of hundreds of steps must not need the memory of hundreds of batches."""
    steps = np.full(10, 7)
    none = np.zeros((9, 10), dtype=np.int64)
    way = Way([RelayCall((), none, none.astype(np.uint64), steps)])
    assert list(way.together()) == [[1, 2], [3, 4], [5, 6], [7]]
    assert 2 * 10 <= DRAWN_TOGETHER < 3 * 10
