"""`fedmbo data`: the data sets, and how a config spreads them over clients."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from own_files import table, write_images

from fedmbo_ray.cli.data import main, spread_shown
from fedmbo_ray.core.io import SHIPPED
from fedmbo_ray.data.array_clients import ArrayClients, Federated, Rows
from fedmbo_ray.data.dataset import Dataset
from fedmbo_ray.data.datasets import ABOUT, DATASETS, data_root, load_dataset
from fedmbo_ray.runs.spread import Spread, earth_movers
from fedmbo_ray.runs.spread_tables import caption, labels


def agrees(name: str) -> bool:
    about, data = ABOUT[name], load_dataset(name, data_root())
    rows = (len(data.train_targets), len(data.test_targets))
    return (*rows, data.train_inputs.shape[1:], data.num_classes) == about[:4]


def test_what_is_said_of_a_data_set_is_so() -> None:
    assert ABOUT.keys() == DATASETS.keys()
    assert agrees("digits")


@pytest.mark.mnist
def test_what_is_said_of_mnist_is_so(mnist: None) -> None:
    assert agrees("mnist")


def test_the_list_says_where_each_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FEDMBO_DATA", str(tmp_path))
    (tmp_path / "cifar10").mkdir()
    (tmp_path / "cifar10" / "cifar-10-python.tar.gz").touch()
    assert main([]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert "1437" in lines["digits"]
    assert "embedded" in lines["digits"]
    assert "not downloaded (fedmbo data fetch mnist)" in lines["mnist"]
    assert lines["cifar10"].rstrip().endswith(" downloaded")
    assert str(tmp_path) in lines["downloaded"]
    assert all(about.licence.split()[0] in lines[name] and about.source for name, about in ABOUT.items())
    assert "131" in lines["chem97"]


def test_a_narrow_terminal_shows_where_each_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "90")
    assert main([]) == 0
    assert "licence" not in capsys.readouterr().out


def test_every_row_of_the_data_is_some_clients() -> None:
    spread = spread_shown(None, ["clients.num_clients=20", "data.partition={name: dirichlet, alpha: 0.5}"])
    assert len(spread.labels) == 20
    assert sum(map(sum, spread.labels)) == sum(spread.train) + sum(spread.validation) == ABOUT["digits"].train
    assert [sum(counts) for counts in spread.labels] == [
        a + b for a, b in zip(spread.train, spread.validation, strict=True)
    ]


def test_a_partition_by_digits_shows(capsys: pytest.CaptureFixture[str]) -> None:
    spread = spread_shown(None, ["data.partition={name: by_digits, digits: 3}"])
    assert spread.sizes()["labels"] == (3, 3, 3)
    assert main(["digits", "data.partition={name: by_digits, digits: 3}", "clients.num_clients=10"]) == 0
    said = capsys.readouterr().out
    assert "digits, by_digits (digits 3), 10 clients" in said
    assert "labels             3     3        3" in said


def test_bars_share_a_scale_and_show_the_mix() -> None:
    spread = Spread("", [1, 1], [1, 1], [[300, 100], [0, 200]])
    bars = labels(spread)
    assert [cell.count("0") for cell in bars.columns[2].cells] == [38, 0]
    assert [cell.count("1") for cell in bars.columns[2].cells] == [12, 25]
    assert caption(spread) == "each character stands for about 8 rows"


def test_no_bar_is_longer_than_its_rows() -> None:
    spread = Spread("", [1, 1], [1, 1], [[5, 2], [0, 1]], ("ant", "bee"))
    assert [cell.count("0") + cell.count("1") for cell in labels(spread).columns[2].cells] == [7, 1]
    assert caption(spread) == "each character stands for a row; 0 = ant, 1 = bee"


def test_how_much_clients_differ() -> None:
    same = Spread("", [4, 4], [1, 1], [[3, 2], [3, 2]])
    assert (same.label_distance(), same.size_variation()) == (0, 0)
    apart = Spread("", [2, 8], [0, 0], [[2, 0], [0, 8]])
    assert apart.label_distance() == pytest.approx((0.8 + 0.2) / 2)
    assert apart.size_variation() == pytest.approx(0.6)


def test_gradients_differ_more_where_labels_do() -> None:
    mixed, sorted_ = (spread_shown(None, [f"data.partition={name}"]).diversity for name in ("iid", "sorted_shards"))
    assert mixed is not None
    assert sorted_ is not None
    assert mixed < 3 < sorted_


def test_a_file_with_clients_and_numbers_to_predict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = table().drop(columns=["colour", "sex", "kind"])
    rows.to_csv(tmp_path / "rows.csv", index=False)
    words = [str(tmp_path / "rows.csv"), "data.target=price", "data.client=clinic", "--plot", str(tmp_path / "p.png")]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "rows.csv, natural, 4 clients; 48 rows to test" in said
    assert "earth mover's distance to all rows, in standard deviations" in said
    assert "gradients are not compared: HyperRepresentation needs labels" in said
    assert "north" in said


def test_a_partition_and_folders_by_their_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_images(tmp_path / "pictures")
    assert main([str(tmp_path / "pictures"), "quantity", "clients.num_clients=3"]) == 0
    assert "pictures, quantity (alpha 0.5, min_rows 2), 3 clients; 12 rows to test" in capsys.readouterr().out


def test_a_sweep_shows_its_first_point() -> None:
    assert spread_shown(SHIPPED / "quickstart.yaml", []).title.startswith("digits, ")


@pytest.mark.parametrize(("kind", "begins"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_the_picture(kind: str, begins: bytes, tmp_path: Path) -> None:
    import matplotlib

    backend = matplotlib.rcParams._get("backend")  # without deciding for one
    picture = tmp_path / "pictures" / f"clients.{kind}"
    assert main(["clients.num_clients=12", "--plot", str(picture)]) == 0
    assert picture.read_bytes().startswith(begins)
    assert matplotlib.rcParams._get("backend") == backend


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["quadratic"], "problem: Quadratic makes its own data"),
        (["digist"], "can't read digist: No such file"),
        (["digits", "iid", "mnist"], "one config or data set and one partition at most, but got digits, iid, mnist"),
        (["digits", "irid"], "data.partition: unknown partition 'irid'; did you mean 'iid'?"),
        (["fetch", "mnits"], "unknown data set 'mnits'; did you mean 'mnist'?"),
        (["fetch"], "fetch needs the name of a data set; known: digits"),
        (["digits", "--plot", "clients.jpg"], "--plot must end in one of png, svg, pdf, but got clients.jpg"),
        (["data.partition=nonsense"], "data.partition: unknown partition 'nonsense'"),
    ],
)
def test_mistakes_are_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {said}")
    assert error.count("\n") == 1


def test_numbers_to_predict_are_counted_in_bins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedmbo_ray.config.schema.DataConfig.load", lambda self: numbers())
    spread = spread_shown(None, ["data={name: chem97, partition: natural}", "clients.num_clients=2"])
    assert [sum(each) for each in spread.labels] == [6, 4]
    assert spread.edges[0] == 0
    assert spread.edges[-1] == 1


def numbers() -> Dataset:
    inputs, marks = np.arange(20.0).reshape(10, 2), np.linspace(0, 1, 10)
    return Dataset("numbers", inputs, marks, inputs, marks, np.array([0] * 6 + [1] * 4))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.sampled_from([-3.0, 0.0, 0.5, 0.6, 7.0]), min_size=1, max_size=6), min_size=2, max_size=5))
def test_the_distance_of_numbers_is_that_of_scipy(parts: list[list[float]]) -> None:
    from scipy.stats import wasserstein_distance

    numbers = np.concatenate([*parts, [1.0, 2.0]])  # the last client owns two different numbers
    sizes = [*map(len, parts), 2]
    rows = np.split(np.arange(len(numbers)), np.cumsum(sizes)[:-1])
    splits = {"train": Rows.of([each[::2] for each in rows]), "validation": Rows.of([each[1::2] for each in rows])}
    inputs = np.zeros((len(numbers), 1))
    clients = ArrayClients(inputs, numbers, splits, None)
    found = earth_movers(Federated(clients, Dataset("", inputs, numbers, inputs, numbers), numbers < 0))
    expected = np.mean([wasserstein_distance(numbers[each], numbers) for each in rows]) / numbers.std()
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)
