"""A problem from two losses on ordinary modules, and data from a function: what a user writes, and what it must be."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from fedmbo_ray import Batch, ConfigError, Count, Dataset, Run, TwoLosses, run_experiment, settings
from fedmbo_ray.core.rng import stream
from fedmbo_ray.data.array_clients import Scaling
from fedmbo_ray.data.batches import Draw
from fedmbo_ray.data.dataset import dataset_of
from fedmbo_ray.methods.lower.minibatch_sgd import MinibatchSGD
from fedmbo_ray.problems.oracles import grad_x_through, hessian_xy, hessian_yy
from fedmbo_ray.runs.build import federate

HERE = __name__
QUICK = ("data={name: digits, partition: iid}", "clients.num_clients=8")


def classified(features: nn.Module, head: nn.Module, **kind: str):
    """Hyper-representation, as a user would write it."""

    def predict(features, head, inputs):
        return head(features(inputs))

    def upper(features, head, batch):
        return cross_entropy(predict(features, head, batch.inputs), batch.targets, reduction="none")

    def lower(features, head, batch):
        penalty = sum(weights.square().sum() for weights in head.parameters())
        return upper(features, head, batch) + 0.0005 * penalty

    return TwoLosses(features, head, upper, lower, predict)


def layers(data, width: int = 64):
    """The default problem."""
    features = nn.Sequential(nn.Flatten(), nn.Linear(data.num_inputs, width), nn.ReLU())
    return classified(features, nn.Linear(width, data.num_classes))


def batch_norm(data):
    features = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
    return classified(features, nn.Linear(144, 10))


def own_statistics(data):
    features = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8, track_running_stats=False))
    return classified(features, nn.Linear(8, 10))


def group_norm(data):
    features = nn.Sequential(nn.Conv2d(1, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.Flatten())
    return classified(features, nn.Linear(288, 10))


def dropped(data, p: float = 0.5):
    features = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Dropout(p))
    return classified(features, nn.Linear(8, 10))


class Encoder(nn.Module):
    """Each number of a row is a token with a learned place; one layer of self-attention, then the mean."""

    def __init__(self, columns: int, width: int = 8) -> None:
        super().__init__()
        self.places = nn.Parameter(torch.randn(columns, width) / 3)
        self.layer = nn.TransformerEncoderLayer(width, 2, 16, dropout=0.0, batch_first=True)
        self.register_buffer("scale", torch.tensor(0.5))  # a constant: no statistics

    def forward(self, inputs: Tensor) -> Tensor:
        tokens = self.scale * inputs.flatten(1).unsqueeze(-1) + self.places
        return self.layer(tokens).mean(1)


def encoder(shape: tuple[int, ...]) -> nn.Module:
    return Encoder(math.prod(shape))


def strengths(data):
    """x need not be a model: one strength of a penalty per pixel."""

    class Strengths(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.log = nn.Parameter(torch.full((data.num_inputs,), -4.0))

    def upper(x, y, batch):
        return cross_entropy(y(batch.inputs.flatten(1)), batch.targets, reduction="none")

    def lower(x, y, batch):
        return upper(x, y, batch) + 0.5 * (x.log.exp() * y.weight.square()).sum() + 0.005 * y.bias.square().sum()

    return TwoLosses(Strengths(), nn.Linear(data.num_inputs, data.num_classes), upper, lower)


def flat_below(data):
    made = layers(data, 4)
    return made._replace(lower=made.upper)


def scalar(data):
    made = layers(data, 4)
    return made._replace(upper=lambda x, y, batch: made.upper(x, y, batch).mean())


def misshapen(data):
    return classified(nn.Linear(3, 4), nn.Linear(4, 10))


def infinite(data):
    made = layers(data, 4)
    return made._replace(lower=lambda x, y, batch: made.lower(x, y, batch) / 0.0)


def no_parameters(data):
    return layers(data)._replace(x=nn.ReLU())


def nothing(data):
    return None


def table(rows: int = 300, clients: int = 6):
    """Floats, labels in words, and whose rows they are."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(rows, 5)).astype(np.float32) * [1, 100, 1, 0, 1] + [0, 1000, 0, 3, 0]
    targets = np.where(inputs[:, 0] + (inputs[:, 1] - 1000) / 100 > 0, "yes", "no")
    return {"inputs": inputs.astype(np.float32), "targets": targets, "clients": np.arange(rows) % clients}


def test_it_does_what_the_class_does() -> None:
    words = (*QUICK, "algorithm.smoothness=20", "record.every=5")
    ours = run_experiment(None, *words, f"problem={HERE}:layers", rounds=15, progress=False)
    theirs = run_experiment(None, *words, rounds=15, progress=False)
    for figure in ("upper_loss", "lower_loss", "test_loss", "test_accuracy"):
        assert np.allclose(ours.records[figure], theirs.records[figure], rtol=1e-3, atol=1e-3), figure
    assert ours.config.resolved()["problem"] == {"name": f"{HERE}:layers", "width": 64}
    test = ours._built().test
    assert test is not None
    logits = ours._built().problem.losses.predict(*(ours.model()[1].x, ours.model()[1].y), test.inputs)
    accuracy = float((logits.argmax(1) == test.targets).double().mean())
    assert accuracy == pytest.approx(ours.records["test_accuracy"].iloc[-1])


def test_parameters_of_the_function_are_keys() -> None:
    run = Run(None, *QUICK, f"problem={{name: '{HERE}:layers', width: 3}}", rounds=1, progress=False)
    assert len(run.x if run.round else run._built().problem.init(stream(0))[0]) == 64 * 3 + 3
    with pytest.raises(ConfigError, match="problem: unknown key 'breadth'; known: width"):
        Run(None, *QUICK, f"problem={{name: '{HERE}:layers', breadth: 3}}", rounds=1)
    with pytest.raises(ConfigError, match=r"problem.width: input should be a valid integer"):
        Run(None, *QUICK, f"problem={{name: '{HERE}:layers', width: many}}", rounds=1)


@pytest.mark.parametrize("name", ["group_norm", "strengths"])
def test_it_learns(name: str) -> None:
    run = run_experiment(None, *QUICK, f"problem={HERE}:{name}", "algorithm.step_size=0.02", rounds=25, progress=False)
    assert run.records["upper_loss"].iloc[-1] < 0.7 * run.records["upper_loss"].iloc[0]


def test_a_transformer_on_a_table_is_a_backbone() -> None:
    words = (f"data={HERE}:table", "data.partition=natural", "clients.num_clients=6", "algorithm.step_size=0.05")
    run = run_experiment(None, *words, f"problem.backbone={HERE}:encoder", rounds=100, progress=False)
    assert run.records["upper_loss"].iloc[-1] < 0.75 * run.records["upper_loss"].iloc[0]
    assert run.config.data.partition.__class__.__name__ == "Natural"


REFUSED = {
    "batch_norm": "BatchNorm|must keep no statistics",
    "own_statistics": "upper loss of a sample must depend on this sample alone",
    "dropped": "must be free of randomness",
    "scalar": r'must be one number per sample, as with reduction="none": .* \(4,\), but has \(\)',
    "misshapen": r"upper loss of .* can't be computed on inputs \(4, 1, 8, 8\), targets \(4,\): RuntimeError",
    "infinite": "lower loss of .* must be finite at the starting point",
    "no_parameters": "x of problem .* must be a module with parameters",
    "nothing": r"must return TwoLosses\(x, y, upper, lower\) with modules, but gave None",
    "missing": "problem 'test_two_losses:missing' can't be imported",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_clients_can_not_compute_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(ConfigError, match=REFUSED[name]) as caught:
        run_experiment(None, *QUICK, f"problem={HERE}:{name}", rounds=1, progress=False)
    assert "\n" not in str(caught.value)


def test_a_lower_loss_without_curvature_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    Run(None, *QUICK, f"problem={HERE}:flat_below", rounds=1, progress=False)
    said = capsys.readouterr().err
    assert said.startswith("warning: the lower loss of 'test_two_losses:flat_below' is not strongly convex in y")
    assert said.count("\n") == 1
    Run(None, *QUICK, f"problem={HERE}:layers", rounds=1, progress=False)
    assert capsys.readouterr().err == ""


def test_products_are_those_of_autograd() -> None:
    run = Run(None, *QUICK, f"problem={HERE}:strengths", rounds=1, progress=False)
    problem, rng = run._built().problem, torch.Generator().manual_seed(0)
    x, y = problem.init(stream(0))
    x, y = x.double(), y.double() + 0.1 * torch.randn(y.shape, generator=rng, dtype=torch.float64)
    v = torch.randn(y.shape, generator=rng, dtype=torch.float64)
    inputs, targets = torch.randn(7, 1, 8, 8, generator=rng, dtype=torch.float64), torch.arange(7)
    batch = Batch(inputs, targets, targets, torch.full((7,), 1 / 7, dtype=torch.float64))
    slope = torch.func.grad(problem.lower, 1)(x, y, batch)
    in_y = torch.func.jacrev(torch.func.grad(problem.lower, 1), 1)(x, y, batch)
    in_x = torch.func.jacrev(torch.func.grad(problem.lower, 1), 0)(x, y, batch)
    assert slope.shape == y.shape
    assert torch.allclose(hessian_yy(problem, batch, x, y, v), in_y @ v)
    assert torch.allclose(hessian_xy(problem, batch, x, y, v), in_x.T @ v)
    assert torch.allclose(grad_x_through(problem, (batch, batch), x, y, v), -in_x.T @ v)


@settings
class Halved:
    """A lower solver that is only ever named by where it is."""

    steps: Count = 1

    def solve(self, clients, x, y, kept):
        return 0.5 * y, kept


def test_any_class_can_be_named_by_where_it_is_or_given_as_an_object() -> None:
    named = run_experiment(None, *QUICK, f"algorithm.lower={HERE}:Halved", rounds=2, progress=False)
    assert named.config.resolved()["algorithm"]["lower"] == {"name": f"{HERE}:Halved", "steps": 1}
    algorithm = named.config.algorithm
    given = run_experiment(None, *QUICK, rounds=2, progress=False, algorithm=algorithm)
    assert given.records["x_sha256"].iloc[-1] == named.records["x_sha256"].iloc[-1]
    with pytest.raises(ConfigError, match=r"must have solve\(clients, x, y, kept\)"):
        Run(None, f"algorithm.lower={HERE}:Encoded", rounds=1)
    assert isinstance(MinibatchSGD, type)


def test_functions_can_be_given_as_they_are() -> None:
    run = run_experiment(data=table, problem=layers, rounds=2, progress=False, clients={"num_clients": 5})
    assert run.config.resolved()["problem"]["name"] == f"{HERE}:layers"
    assert run.config.resolved()["data"]["name"] == f"{HERE}:table"
    with pytest.raises(ConfigError, match="must be defined at the top of a module"):
        run_experiment(problem=lambda data: layers(data), rounds=2)


@settings
class Encoded:
    steps: Count = 1


ANSWERS = {
    "no arrays": (3, r"must return \(inputs, targets\)"),
    "inputs alone": ({"inputs": np.zeros((4, 2))}, "a mapping with inputs"),
    "odd name": (
        {"inputs": np.zeros((4, 2)), "targets": np.zeros(4), "test": 1},
        "unknown array 'test'; known: inputs",
    ),
    "lengths": ((np.zeros((4, 2)), np.zeros(3)), r"inputs have 4 rows, but targets has the shape \(3,\)"),
    "flat": ((np.zeros(9), np.arange(9) % 2), r"must have the shape \(rows, ...\), but have \(\d,\)"),
    "words": ((np.full((9, 2), "a"), np.arange(9) % 2), "encode text as numbers"),
    "missing": ((np.full((9, 2), np.nan), np.arange(9) % 2), r"inputs\[0, 0\] is nan; fill missing values in"),
    "one label": ((np.ones((9, 2)), np.ones(9, dtype=int)), "must have two labels or more, but all are '1'"),
    "constant": ((np.ones((9, 2)), np.ones(9)), "targets must differ, but all are 1"),
    "ids": ((np.ones((99, 2)), np.arange(99)), "labels must repeat, but 99 of 99 targets differ"),
    "holes": ((np.ones((9, 2)), np.array([1.0] * 8 + [np.nan])), "must be finite, but targets"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_arrays_that_are_no_data_set_are_refused_in_one_line(name: str) -> None:
    answer, said = ANSWERS[name]
    with pytest.raises(ConfigError, match=said) as caught:
        dataset_of("mine", answer, 0.2)
    assert "\n" not in str(caught.value)


def test_labels_and_clients_may_have_names() -> None:
    data = dataset_of("mine", {**table(), "groups": np.arange(300) % 2}, 0.25)
    assert data.class_names == ("no", "yes")
    assert data.client_names == tuple("012345")
    assert (len(data.train_targets), len(data.test_targets), data.num_clients) == (225, 75, 6)
    assert data.groups is not None
    assert data.digest == dataset_of("mine", {**table(), "groups": np.arange(300) % 2}, 0.25).digest
    assert isinstance(data, Dataset)


def test_features_are_standardized_one_by_one() -> None:
    inputs = table()["inputs"]
    scaling = Scaling.of(inputs)
    assert scaling is not None
    scaled = scaling.apply(torch.from_numpy(inputs), torch.float64)
    assert torch.allclose(scaled.mean(0), torch.zeros(5, dtype=torch.float64), atol=1e-4)
    assert torch.allclose(scaled.std(0, correction=0), torch.tensor([1, 1, 1, 0, 1.0], dtype=torch.float64), atol=1e-4)


def test_a_function_that_raises_is_told_with_its_arguments() -> None:
    with pytest.raises(ConfigError, match=r"data: data set test_two_losses:table\(rows='x'\) failed: "):
        Run(None, f"data={{name: '{HERE}:table', arguments: {{rows: x}}}}", rounds=1)
    with pytest.raises(ConfigError, match="data: data set 'test_two_losses:HERE' must be a function"):
        Run(None, f"data={HERE}:HERE", rounds=1)


def numbers(rows: int = 200):
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(rows, 3))
    return inputs, inputs @ [1.0, -2.0, 0.5]


def regression(data):
    def predict(x, y, inputs):
        return y(x(inputs)).squeeze(-1)

    def upper(x, y, batch):
        return mse_loss(predict(x, y, batch.inputs), batch.targets, reduction="none")

    def lower(x, y, batch):
        return upper(x, y, batch) + 0.01 * sum(weights.square().sum() for weights in y.parameters())

    return TwoLosses(nn.Linear(data.num_inputs, 4), nn.Linear(4, 1), upper, lower, predict)


def test_numbers_can_be_predicted() -> None:
    words = (f"data={HERE}:numbers", "clients.num_clients=5", f"problem={HERE}:regression")
    run = run_experiment(None, *words, "algorithm.lower.step_size=0.1", rounds=60, progress=False)
    assert run.records["test_r2"].iloc[-1] > 0.9
    with pytest.raises(ConfigError, match=r"HyperRepresentation needs labels, but the targets of .* are numbers"):
        Run(None, f"data={HERE}:numbers", "clients.num_clients=5", rounds=1)


def test_clients_count_by_size_if_asked() -> None:
    words = (f"data={{name: '{HERE}:table', weights: by_size}}", "data.partition={name: quantity, alpha: 0.5}")
    run = Run(None, *words, "clients.num_clients=6", rounds=1, progress=False)
    assert run.config.data is not None
    clients = federate(run.config.data, 0, 6).clients
    sizes = clients.splits["train"].size + clients.splits["validation"].size
    assert clients.shares is not None
    assert np.allclose(clients.shares * sizes.sum(), 6 * sizes)
    problem, data, cpu = run._built().problem, run._built().data, torch.device("cpu")
    x, y = problem.init(stream(0))
    rows = clients.splits["validation"]
    batches = data.draw(np.arange(6), np.arange(6, dtype=np.uint64), Draw("validation", None), cpu)
    losses = []
    for start, size in zip(rows.start, rows.size, strict=True):
        batch = data.take(rows.order[start : start + size], torch.full((size,), 1 / size), cpu)
        losses.append(float(problem.upper(x, y, batch)))
    expected = float(np.dot(losses, sizes / sizes.sum()))
    assert float(problem.upper(x, y, batches.merged())) == pytest.approx(expected, rel=1e-4)
