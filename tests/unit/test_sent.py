"""What has been sent already: which tensors, to which slots of which cohort, and what that saves."""

from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from tasks import federation, tiny_config, tiny_task

from fedmbo_ray.backends.in_process import InProcess
from fedmbo_ray.cli import catalog
from fedmbo_ray.cli.entries import entries
from fedmbo_ray.core.cards import OURS, Card
from fedmbo_ray.core.components import assumptions, construct
from fedmbo_ray.core.errors import RunFailed
from fedmbo_ray.core.rng import stream
from fedmbo_ray.core.settings import settings
from fedmbo_ray.data.batches import Draw
from fedmbo_ray.federation.availability import Unreliable
from fedmbo_ray.federation.clients import Clients, Federation
from fedmbo_ray.federation.cohort import Cohort
from fedmbo_ray.federation.sent import VersionNumbers
from fedmbo_ray.methods.algorithms.fedmsa import FedMSA
from fedmbo_ray.methods.outer import OUTER
from fedmbo_ray.problems.oracles import grad_y_lower
from fedmbo_ray.runs.build import build_federation, build_task

TRAIN = Draw("train", 3)
P = Q = 4


class Told:
    """Tells cohorts x and y of the tiny quadratic."""

    def __init__(self, **changes: Any) -> None:
        task = tiny_task("quadratic")
        self.federation: Federation = federation(task, 6, **changes)
        self.clients: Clients = self.federation.clients(stream(0))
        self.x, self.y = task.problem.init(stream(0))

    def floats(self, cohort: Cohort) -> int:
        """What telling the cohort x and y costs now."""
        before = self.federation.meter.floats_down
        self.clients.mean(grad_y_lower, cohort, self.x, self.y, draw=TRAIN)
        return self.federation.meter.floats_down - before

    def waited(self, cohort: Cohort) -> float:
        before = self.federation.meter.waited
        self.floats(cohort)
        return self.federation.meter.waited - before


def test_both_halves_of_everyone_are_charged_in_full() -> None:
    told = Told()
    everyone = told.clients.everyone()
    assert told.floats(everyone[:10]) == told.floats(everyone[10:]) == 10 * (P + Q)
    assert told.floats(everyone) == 0


def test_a_slot_keeps_what_it_was_told_in_every_part_and_order() -> None:
    told = Told()
    cohort = told.clients.sample()
    assert told.floats(cohort[:4]) == 4 * (P + Q)
    assert told.floats(cohort[2:][np.array([3, 0, 1])]) == (P + Q)  # slots 5, 2 and 3: only 5 is new to it
    assert told.floats(cohort[np.array([False, True, False, False, True, False])]) == (P + Q)
    assert told.floats(cohort) == 0


def test_a_client_that_is_sampled_again_is_told_again() -> None:
    told = Told()
    ids = np.arange(6)
    assert told.floats(Cohort(ids)) == told.floats(Cohort(ids)) == 6 * (P + Q)
    assert told.floats(ids) == told.floats(ids) == 6 * (P + Q)  # plain ids are a cohort of their own each time


def test_a_tensor_that_was_written_to_is_charged_again_and_so_is_a_copy() -> None:
    told = Told()
    cohort = told.clients.sample()
    told.floats(cohort)
    told.y += 1
    assert told.floats(cohort) == 6 * Q
    told.x = told.x.clone()
    assert told.floats(cohort) == 6 * P
    assert told.floats(cohort) == 0


def test_a_tensor_has_one_number_until_it_is_written_to() -> None:
    numbers, a, b = VersionNumbers(), torch.zeros(3), torch.zeros(3)
    first = numbers.of(a)
    assert numbers.of(b) != first == numbers.of(a)
    a[0] = 1
    assert len({first, numbers.of(a), numbers.of(b)}) == 3
    a.view(3).mul_(2)  # through another view
    assert numbers.of(a) > numbers.of(b)


def test_numbers_of_forgotten_tensors_are_not_used_again() -> None:
    numbers, tensors = VersionNumbers(most=2), [torch.zeros(1) for _ in range(4)]
    given = [numbers.of(each) for each in tensors]
    assert numbers.of(tensors[3]) == given[3]
    assert numbers.of(tensors[0]) not in given
    assert len(numbers.known) == 2


def test_a_cohort_is_as_convenient_as_its_ids() -> None:
    cohort = Cohort(np.array([3, 1, 3]))
    assert len(cohort) == 3
    assert list(cohort[1:]) == [1, 3]
    assert np.asarray(cohort).tolist() == [3, 1, 3]
    assert np.bincount(cohort).tolist() == [0, 1, 0, 2]


LATE = Unreliable(straggle=0.99, delay="constant", delay_mean=1.0)


def test_an_answer_is_waited_for_once_for_each_time_that_clients_are_asked() -> None:
    told = Told(availability=LATE)
    cohort = told.clients.sample()
    assert told.federation.meter.waited == 1
    assert told.waited(cohort[:3]) == told.waited(cohort[3:]) == 0  # when sampled, all were waited for
    assert told.waited(cohort) == told.waited(cohort[:3]) == 1


def test_what_clients_know_does_not_make_them_late() -> None:
    told = Told(availability=LATE)
    cohort = told.clients.knowing(told.clients.sample(), told.x)
    assert told.waited(cohort) == 0
    assert told.federation.meter.floats_down == 6 * Q


def test_fedmsa_waits_once_for_everyone_and_once_for_its_cohort() -> None:
    task = tiny_task("quadratic")
    fed, method = federation(task, 6, availability=LATE), FedMSA()
    state = method.init(*task.problem.init(stream(0)), 20)
    method.round(fed.clients(stream(1), 1), state)
    assert fed.meter.communications == fed.meter.waited == 2


@settings
class Discount:
    """An outer step that claims that clients know x."""

    def step(self, clients: Clients, x: torch.Tensor, y: torch.Tensor, h: torch.Tensor, step_size: float) -> Any:
        return clients.mean(grad_y_lower, clients.knowing(clients.sample(), x), x, y, draw=TRAIN)


@settings
class OpenDiscount(Discount):
    """The same, and says so."""

    card: ClassVar[Card] = Card("", OURS, assumes="clients know x")


@pytest.mark.parametrize("outer", [Discount, OpenDiscount])
def test_traffic_is_discounted_only_by_a_method_that_says_so(outer: type, monkeypatch) -> None:
    monkeypatch.setitem(OUTER._classes, "discount", outer)
    method = {**tiny_config().resolved()["algorithm"], "outer": "discount"}
    config = tiny_config(algorithm=method)
    task = build_task(config)
    fed = build_federation(config, task, InProcess(task))
    state = config.algorithm.init(*task.problem.init(stream(0)), 20)
    assert assumptions(config.algorithm) == ("clients know x" if outer is OpenDiscount else "")
    if outer is OpenDiscount:
        config.algorithm.round(fed.clients(stream(1)), state)
    else:
        with pytest.raises(RunFailed, match=r"card must say what clients know already: Card\(\.\.\., assumes="):
            config.algorithm.round(fed.clients(stream(1)), state)


def test_the_catalogue_shows_what_a_method_assumes(capsys) -> None:
    assumed = FedMSA.card.assumes
    assert [each.name for each in entries() if each.assumes] == ["fedmsa"]
    for words in (["algorithm"], ["fedmsa"], ["fedmsa", "--json"]):
        assert catalog.main(words) == 0
        assert assumed in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("batch_size", [4, None])
@pytest.mark.parametrize("problem", ["quadratic", "hyper_representation"])
def test_one_local_step_of_fedmsa_is_a_step_along_the_momenta(problem: str, batch_size: int | None) -> None:
    task = tiny_task(problem)
    method = construct(FedMSA, {"local_steps": 1, "batch_size": batch_size})
    fed = federation(task, 6, block_size=4)
    before = method.init(*task.problem.init(stream(0)), 20)
    after = method.round(fed.clients(stream(1), 1), before)
    for name, step in (("x", 0.05), ("y", 0.1), ("v", 0.1)):
        torch.testing.assert_close(after[name], before[name] - step * after[f"d_{name}"], rtol=1e-12, atol=1e-14)
    fed.meter.samples = 0
    clients = fed.clients(stream(2))
    none = Draw("train", batch_size, count=0)
    assert clients.mean(lambda problem, batches, y: y, clients.sample(), before["y"], draw=none).shape == (
        len(before["y"]),
    )
    assert fed.meter.samples == 0
