"""Communications that are known beforehand lead to what they lead to one by one; their batches are drawn together."""

from typing import Any

import pytest
import torch
from tasks import federation, tiny_task
from torch import Tensor

from fedmbo_ray.backends.in_process import InProcess
from fedmbo_ray.core.errors import RunFailed
from fedmbo_ray.core.rng import stream
from fedmbo_ray.data.array_clients import ArrayClients
from fedmbo_ray.data.batches import Batch, Draw
from fedmbo_ray.federation.availability import AlwaysAvailable, Unreliable
from fedmbo_ray.federation.clients import Clients
from fedmbo_ray.federation.draws import DRAWN_TOGETHER, MOST_SAMPLES, drawn_together
from fedmbo_ray.problems.oracles import grad_y_lower, grad_y_through

TRAIN = Draw("train", 3)
PAIR = (Draw("validation", 3), TRAIN)
OMITTING = Unreliable(dropout=0.3, straggle=0.2, dropped="omit")
STEPS = 7


def descent(clients: Clients, x: Tensor, y: Tensor, ahead: bool) -> Tensor:
    cohorts = clients.ahead(STEPS) if ahead else (clients.sample() for _ in range(STEPS))
    for step, cohort in enumerate(cohorts):
        oracle, more, draw = (grad_y_through, (y,), PAIR) if step % 3 == 2 else (grad_y_lower, (), TRAIN)
        y = y - 0.1 * clients.mean(oracle, cohort, x, y, *more, draw=draw)
    return y


@pytest.mark.parametrize("availability", [AlwaysAvailable(), OMITTING], ids=["all answer", "some are omitted"])
@pytest.mark.parametrize("problem", ["quadratic", "hyper_representation", "hyper_cleaning", "loss_tuning"])
def test_what_is_known_beforehand_leads_to_the_same(problem: str, availability: Any) -> None:
    task = tiny_task(problem)
    x, y = task.problem.init(stream(0))
    feds = [federation(task, 7, block_size=3, availability=availability) for _ in range(2)]
    for round in range(3):
        clients = [fed.clients(stream(1, round)) for fed in feds]
        found, expected = descent(clients[0], x, y, ahead=True), descent(clients[1], x, y, ahead=False)
        assert torch.allclose(found, expected, rtol=1e-12, atol=1e-14)
    assert feds[0].meter == feds[1].meter
    assert clients[0].rng.random() == clients[1].rng.random()


def test_batches_are_drawn_in_one_call_and_x_is_applied_once(monkeypatch: pytest.MonkeyPatch) -> None:
    task = tiny_task("hyper_representation")
    x, y = task.problem.init(stream(0))
    fed, sizes, drawn = federation(task, 6, block_size=3), list[int](), ArrayClients.draw

    def counted(self: ArrayClients, clients: Any, *rest: Any) -> Batch:
        sizes.append(len(clients))
        return drawn(self, clients, *rest)

    monkeypatch.setattr(ArrayClients, "draw", counted)
    clients = fed.clients(stream(1))
    for cohort in clients.ahead(4):
        y = y - clients.mean(grad_y_lower, cohort, x, y, draw=TRAIN)
    assert sizes == [12, 12]  # two blocks of three slots, in four communications
    assert isinstance(fed.backend, InProcess)
    assert not fed.backend.prepared.kept


def test_what_was_made_of_another_x_is_not_used() -> None:
    task = tiny_task("hyper_representation")
    x, y = task.problem.init(stream(0))
    clients, again = (federation(task, 6).clients(stream(1)) for _ in range(2))
    for step, (cohort, plain) in enumerate(zip(clients.ahead(4), (again.sample() for _ in range(4)), strict=True)):
        if step == 1:
            x = x + 1
        if step == 2:
            x += 1
        expected = again.mean(grad_y_lower, plain, x, y, draw=TRAIN)
        assert torch.allclose(clients.mean(grad_y_lower, cohort, x, y, draw=TRAIN), expected, rtol=1e-12)


def test_a_cohort_that_is_asked_again_draws_anew_and_is_not_cut_before() -> None:
    task = tiny_task("hyper_representation")
    x, y = task.problem.init(stream(0))
    clients = federation(task, 6).clients(stream(1))
    cohort, other = clients.ahead(2)
    first, second = (clients.mean(grad_y_lower, cohort, x, y, draw=TRAIN) for _ in range(2))
    assert not torch.equal(first, second)
    with pytest.raises(RunFailed, match="must be asked as a whole first"):
        other[:2]


def test_how_much_is_drawn_beforehand_is_bounded() -> None:
    assert drawn_together(Draw("train", 64), slots=10, width=5) == DRAWN_TOGETHER // 5
    assert drawn_together(Draw("train", MOST_SAMPLES // 20), slots=10, width=5) == 2
    assert drawn_together(Draw("train", 64), slots=10_000, width=5) == 1
    assert drawn_together(Draw("train", None), slots=2, width=1) == 1
    assert drawn_together((Draw("train", MOST_SAMPLES // 80), TRAIN), slots=10, width=1) == 7
