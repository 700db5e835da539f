"""Configs: what is right survives a round trip, what is wrong gets one line that says how."""

from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
import yaml
from checkout import ROOT
from tasks import TINY_PROBLEMS, tiny_config
from torch import nn

from fedmbo_ray.config.overrides import differences, read_config
from fedmbo_ray.config.schema import RunConfig
from fedmbo_ray.core.components import construct
from fedmbo_ray.core.errors import ConfigError
from fedmbo_ray.core.io import parse_yaml
from fedmbo_ray.core.settings import settings
from fedmbo_ray.methods.algorithms import ALGORITHMS
from fedmbo_ray.methods.algorithms.double_loop import DoubleLoop
from fedmbo_ray.problems import PROBLEMS
from fedmbo_ray.problems.base import Task
from fedmbo_ray.problems.quadratic import Quadratic
from fedmbo_ray.runs.build import build_task, require_rows


@pytest.mark.parametrize("problem", TINY_PROBLEMS)
def test_a_resolved_config_reads_back_equal(problem: str) -> None:
    config = tiny_config(problem)
    text = yaml.safe_dump(config.resolved())
    assert construct(RunConfig, yaml.safe_load(text)) == config


def test_the_default_and_shipped_configs_are_valid() -> None:
    assert isinstance(read_config(None, []).algorithm, DoubleLoop)
    for path in (ROOT / "tune_configs").rglob("*.yaml"):
        if "tune:" not in path.read_text():  # sweeps are shown by test_tune
            read_config(path, [])


def test_short_forms() -> None:
    fields = {
        "data.partition": "iid",
        "algorithm.smoothness": "auto",
        "algorithm.step_size": "{name: decay, initial: 1}",
    }
    config = read_config(None, [f"{path}={value}" for path, value in fields.items()])
    resolved = config.resolved()
    assert resolved["data"]["partition"] == {"name": "iid"}
    assert resolved["algorithm"]["smoothness"]["name"] == "auto"
    assert resolved["algorithm"]["step_size"] == {"name": "decay", "initial": 1.0, "power": 0.5, "offset": 1.0}


def test_numbers_as_people_write_them() -> None:
    config = read_config(None, ["algorithm.step_size=1e-3", "problem.regularization=1e-2", "algorithm.smoothness=3"])
    assert config.resolved()["algorithm"]["step_size"] == {"name": "constant", "value": 0.001}
    assert config.resolved()["problem"]["regularization"] == 0.01


def test_a_new_name_keeps_the_parameters_that_the_new_component_has() -> None:
    for words in (
        ["data.partition.name=dirichlet", "data.partition.alpha=0.3", "algorithm.hypergradient=phe_sum"],
        ["algorithm.hypergradient.name=phe_sum", "data.partition.alpha=0.3", "data.partition=dirichlet"],
    ):
        resolved = read_config(None, words).resolved()
        assert resolved["data"]["partition"] == {"name": "dirichlet", "alpha": 0.3, "min_rows": 2}
        assert resolved["algorithm"]["hypergradient"] == {"name": "phe_sum", "terms": 5, "batch_size": 32}


def test_a_new_name_drops_the_parameters_that_the_new_component_has_not() -> None:
    words = ["algorithm.lower.local_steps=2", "algorithm.lower.name=fedavg", "algorithm.hypergradient.name=exact"]
    algorithm = read_config(None, words).resolved()["algorithm"]
    assert algorithm["lower"].keys() == {"name", "steps", "local_steps", "step_size", "batch_size"}
    assert algorithm["hypergradient"] == {"name": "exact", "tolerance": 1e-8, "iterations": 1000}


def test_the_name_of_a_data_set_leaves_the_rest_of_its_section() -> None:
    config = read_config(None, ["data.validation=0.5", "data.partition=iid", "data.name=mnist"])
    data = config.resolved()["data"]
    assert (data["name"], data["validation"], data["partition"]) == ("mnist", 0.5, {"name": "iid"})


def test_the_quadratic_on_the_default_config() -> None:
    assert read_config(None, ["problem=quadratic"]).data is None


WRONG = {
    "algorithm.lower.stepz=3": "algorithm.lower: unknown key 'stepz'; did you mean 'steps'? known: steps, step_size",
    "clients.backnd=ray": "clients: unknown key 'backnd'; did you mean 'backend'?",
    "sed=1": "unknown key 'sed'; did you mean 'seed'?",
    "algorithm.hypergradient.name=phee": "estimator 'phee'; did you mean 'phe'? known: phe, phe_sum",
    "algorithm.hypergradient.terms=0": "hypergradient.terms: input should be greater than or equal to 1, but got 0",
    "algorithm.step_size=-1": "algorithm.step_size.value: input should be greater than 0, but got -1",
    "algorithm.step_size=fast": "algorithm.step_size: unknown step size schedule 'fast'; known: constant",
    "algorithm.smoothness=[1]": "algorithm.smoothness: must be a number, a name or a mapping with a name, but got [1]",
    "algorithm.lower={stepz: 3}": "algorithm.lower: a lower solver needs a name; known: minibatch_sgd",
    "rounds=many": "rounds: input should be a valid integer",
    "clients.backend=spark": "clients.backend: input should be 'in_process' or 'ray', but got 'spark'",
    "data.name=imagenet": "data.name: unknown data set 'imagenet'; did you mean 'images'? known: digits, mnist,",
    "clients.availability={dropout: 2}": "clients.availability.dropout: input should be less than or equal to 0.99",
    "problem.backbone=resnet": "problem: unknown backbone 'resnet'; known: mlp, cnn, words, or package.module:function",
    "clients.availability={drop: 1}": "clients.availability: unknown key 'drop'; did you mean 'dropped'?",
    "algorithm.step_size=.inf": "algorithm.step_size.value: input should be a finite number, but got inf",
    "data.partition.x=1": "data.partition: unknown key 'x'; known: digits",
    "data.partition=5": "data.partition: must be a name or a mapping with a name, but got 5",
    "data=0": "data: input should be a valid dictionary or instance of DataConfig, but got 0",
    "rounds=true": "rounds: input should be a valid integer, but got True",
    "rounds=9999999999": "rounds: input should be less than or equal to 2147483647",
    "seed=2020-13-45": "the value of 'seed=2020-13-45' is not YAML",
    "seed=!!int abc": "is not YAML",
    "clients.cpus_per_actor=0.00001": "clients.cpus_per_actor: a share must be 0 or at least 0.0001",
    "clients.availability.dropout=0.999": "clients.availability.dropout: input should be less than or equal to 0.99",
    "problem.backbone=[1]": "problem.backbone: a backbone must be a name or a mapping with a name, but got [1]",
    "clients={actors: 1, actors: 2}": "the key 'actors' is given twice",
    "rounds": "an override must read key.path=value, but got 'rounds'",
}


@pytest.mark.parametrize("word", WRONG)
def test_one_line_for_what_is_wrong(word: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_config(None, [word])
    assert WRONG[word] in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_mapping_that_overrides_what_it_merges_may_be_merged_again() -> None:
    text = "{a: &a {x: 1, y: 1}, c: {<<: &b {<<: *a, x: 2}, z: 3}, b: *b}"
    assert parse_yaml(text, "this")["b"] == {"x": 2, "y": 1}
    assert parse_yaml(text, "this")["c"] == {"x": 2, "y": 1, "z": 3}
    with pytest.raises(ConfigError, match="the key 'x' is given twice"):
        parse_yaml("{a: &a {x: 1}, b: {<<: *a, x: 2, x: 3}}", "this")


def test_more_clients_than_there_are_without_replacement() -> None:
    words = ["clients.replace=false", "clients.cohort_size=60"]
    with pytest.raises(
        ConfigError,
        match="clients: without replacement `cohort_size <= num_clients` must hold, but got cohort_size=60, num",
    ):
        read_config(None, words)


def test_a_partition_that_can_not_give_what_is_asked() -> None:
    with pytest.raises(ConfigError, match=r"data\.partition\.digits: `digits <= 10`"):
        build_task(read_config(None, ["data.partition.digits=11"]))
    with pytest.raises(ConfigError, match=r"data\.partition: `rows of a label >= clients that own it`"):
        build_task(read_config(None, ["clients.num_clients=5000"]))


def test_a_backbone_that_does_not_fit() -> None:
    wrong = {
        "problem.backbone.depth=3": "problem: backbone 'mlp' can't be made with {'width': 64, 'depth': 3}",
        "problem.backbone.width=-1": "problem: backbone 'mlp' can't be made with {'width': -1}",
        "problem.backbone=test_config:with_buffers": "must keep no statistics of batches",
        "problem.backbone=test_config:with_dropout": "must be free of randomness",
        "problem.backbone=test_config:unflattened": "must give one row of features per input",
        "problem.backbone=test_config:misfit": "can't take inputs of shape (1, 8, 8): mat1 and mat2 shapes",
        "problem.backbone=test_config:nothing": "must be a torch module with parameters",
    }
    for word, message in wrong.items():
        with pytest.raises(ConfigError) as caught:
            build_task(read_config(None, [word]))
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)


def with_buffers(input_shape):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.BatchNorm1d(4))


def with_dropout(input_shape):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.Dropout(0.5))


def unflattened(input_shape):
    return nn.Conv2d(1, 2, 3)


def misfit(input_shape):
    return nn.Linear(5, 3)


def nothing(input_shape):
    return 5


def test_the_quadratic_has_no_data_section() -> None:
    with pytest.raises(ConfigError, match="makes its own data"):
        tiny_config("quadratic", data={"name": "digits"})


def test_differences_name_the_paths() -> None:
    old, new = tiny_config("quadratic"), tiny_config("quadratic", seed=1, rounds=9)
    assert differences(old.resolved(), new.resolved()) == ["rounds", "seed"]


def test_missing_and_broken_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"can't read .*none.yaml: No such file"):
        read_config(tmp_path / "none.yaml", [])
    (tmp_path / "bad.yaml").write_text("a: [1")
    with pytest.raises(ConfigError, match="is not YAML"):
        read_config(tmp_path / "bad.yaml", [])
    (tmp_path / "list.yaml").write_text("- 1")
    with pytest.raises(ConfigError, match="must be a mapping of keys to values, but is list"):
        read_config(tmp_path / "list.yaml", [])
    (tmp_path / "empty.yaml").write_text("")
    with pytest.raises(ConfigError, match="must be a mapping"):
        read_config(tmp_path / "empty.yaml", [])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["algorithm=adafbio"],
            "algorithm: AdaFBiO needs every client in every communication: `cohort_size == num_clients` must hold, "
            "but got cohort_size=10, num_clients=50",
        ),
        (
            ["algorithm.lower={name: proxskip, steps: 2, probability: 0.5, step_size: 0.1, batch_size: 4}"],
            "algorithm.lower: ProxSkip",
        ),
        (["algorithm=mrbo"], "algorithm: MRBO is for a single machine: `cohort_size == num_clients == 1` must hold"),
        (["algorithm.lower=scaffold"], "algorithm.lower.local_steps: is required"),
        (
            ["algorithm=fednest", "algorithm.lower=fedavg"],
            "algorithm.lower: is fixed in FedNest; its keys steps, local_steps",
        ),
        (["algorithm=fednest", "algorithm.outer.local_step=2"], "did you mean 'local_steps'?"),
        (["algorithm=simfb"], "did you mean 'simfbo'?"),
        (
            ["algorithm=simfbo", "algorithm.local_steps={fewest: 3, most: 2}"],
            "`fewest <= most` must hold",
        ),
    ],
)
def test_what_a_method_needs_is_said_in_one_line(words: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_config(None, words)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_method_takes_its_own_defaults_and_the_changes_to_them() -> None:
    config = read_config(None, ["algorithm=fednest", "algorithm.lower.local_steps=3", "algorithm.smoothness.every=7"])
    algorithm = config.resolved()["algorithm"]
    assert algorithm["name"] == "fednest"
    assert (algorithm["lower"]["local_steps"], algorithm["lower"]["steps"]) == (3, 1)
    assert algorithm["smoothness"] == {"name": "auto", "iterations": 10, "every": 7, "margin": 1.5, "batch_size": None}
    assert construct(RunConfig, config.resolved()) == config


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name != "double_loop"])
def test_every_method_is_built_by_its_name_alone(name: str) -> None:
    participation = ALGORITHMS[name].card.participation
    m, n = {"one": (1, 1), "full": (20, 20)}.get(participation, (20, 6))
    words = [f"algorithm={name}", f"clients.num_clients={m}", f"clients.cohort_size={n}", "data.partition=iid"]
    config = read_config(None, words)
    assert construct(RunConfig, config.resolved()) == config


class Squared(torch.autograd.Function):
    """½‖y‖² with a gradient that can't be differentiated again."""

    generate_vmap_rule = True

    @staticmethod
    def forward(y):
        return y.square().sum() / 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0]


class OnceDifferentiable:
    def init(self, rng):
        return torch.zeros(2), torch.zeros(3)

    def upper(self, x, y, batch):
        return y.square().sum()

    def lower(self, x, y, batch):
        return Squared.apply(y) + x.sum() * y.sum()


@settings
class OnceDifferentiableSettings:
    needs_data: ClassVar[bool] = False

    def build(self, seed, num_clients, data):
        return Task(OnceDifferentiable(), Quadratic().build(seed, num_clients).data, None)


def test_a_problem_without_second_derivatives_is_refused_by_all_but_first_order_methods(monkeypatch) -> None:
    monkeypatch.setitem(PROBLEMS._classes, "once", OnceDifferentiableSettings)
    with pytest.raises(ConfigError) as error:
        build_task(read_config(None, ["problem=once"]))
    assert str(error.value).startswith(
        "algorithm: DoubleLoop needs ∇²_yy g·v, which OnceDifferentiable can't compute ("
    )
    assert "memfbo" in str(error.value)
    assert "\n" not in str(error.value)
    build_task(read_config(None, ["problem=once", "algorithm=memfbo"]))


def test_of_overrides_the_last_one_wins_and_inner_ones_change_outer_ones() -> None:
    def algorithm(*words: str) -> dict:
        return read_config(None, ["problem=quadratic", *words]).resolved()["algorithm"]

    assert algorithm("algorithm.smoothness=3", "algorithm.smoothness=auto")["smoothness"]["name"] == "auto"
    assert algorithm("algorithm.smoothness=auto", "algorithm.smoothness=3")["smoothness"]["value"] == 3
    assert algorithm("algorithm={name: simfbo}", "algorithm=fednest")["name"] == "fednest"
    whole = "algorithm={name: fednest, lower: {steps: 2}}"
    changed = algorithm("algorithm.lower.local_steps=7", whole)["lower"]
    assert (changed["steps"], changed["local_steps"]) == (2, 7)
    assert algorithm("algorithm.step_size.value=0.3")["step_size"] == {"name": "constant", "value": 0.3}
    assert algorithm("algorithm=simfbo", "algorithm.batch_size=5", "algorithm.name=simfbo")["batch_size"] == 5
    assert algorithm("algorithm=bsa", "algorithm.lower.step_size.initial=0.3")["lower"]["step_size"]["power"] == 0.5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["clients=5", "clients.num_clients=6"], "clients: must be a mapping to set one of its keys, but is 5"),
        (["algorithm=fednest", "algorithm.lower=5", "algorithm.lower.steps=2"], "algorithm.lower: must be a mapping"),
        (["algorithm=adafbio", "clients.cohort_size=50", "algorithm.rate=3"], "algorithm: a momentum's weight must be"),
        (["algorithm=fedbioacc", "clients.cohort_size=50", "algorithm.rate=1e38"], "a momentum's weight must be"),
        (["algorithm.step_size=1" + 400 * "0"], "algorithm.step_size: must be a number"),
    ],
)
def test_no_value_is_lost_on_the_way(words: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_config(None, words)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("rows", [[np.arange(5)], [np.arange(4), np.arange(4)], [np.array([-1]), np.array([0])], None])
def test_a_partition_must_give_every_client_rows_of_its_own(rows) -> None:
    with pytest.raises(ConfigError, match="a partition must give"):
        require_rows(rows, 2, 10)
