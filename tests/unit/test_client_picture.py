"""What MLflow is told about a run's clients, without an MLflow."""

from pathlib import Path

import pytest
from own_files import table

from fedmbo_ray.config.overrides import read_config
from fedmbo_ray.runs.build import federate
from fedmbo_ray.runs.spread import spread_of
from fedmbo_ray.tracking.client_picture import ClientPictures, what_clients_have


def test_numbers_to_predict_have_a_distance_of_their_own(tmp_path: Path) -> None:
    table().drop(columns=["colour", "sex", "kind"]).to_csv(tmp_path / "rows.csv", index=False)
    data = f"data={{name: file, path: {tmp_path}/rows.csv, target: price, client: clinic}}"
    config = read_config(None, ["problem=ridge_head", data, "clients.num_clients=4"])
    picture = ClientPictures().of(config)
    spread = spread_of(config.data, federate(config.data, config.seed, 4))
    assert picture.numbers == {
        "clients/number_distance": spread.label_distance(),
        "clients/size_variation": spread.size_variation(),
    }
    assert "north" in picture.files["clients.txt"].decode()
    assert "\x1b" not in picture.files["clients.txt"].decode()


def test_a_picture_is_made_once_for_the_same_clients() -> None:
    pictures = ClientPictures()
    first = pictures.of(read_config(None, ["clients.num_clients=5"]))
    assert pictures.of(read_config(None, ["clients.num_clients=5", "algorithm.step_size=0.3"])) is first
    assert pictures.of(read_config(None, ["clients.num_clients=5", "seed=1"])) is not first


@pytest.mark.parametrize("word", ["clients.num_clients=7", "seed=3", "data.partition=iid", "data.label_noise=0.5"])
def test_what_decides_who_has_what(word: str) -> None:
    same, other = read_config(None, ["clients.cohort_size=3", "rounds=7"]), read_config(None, [word])
    assert what_clients_have(same) == what_clients_have(read_config(None, [])) != what_clients_have(other)


def test_data_that_can_not_be_read_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    config = read_config(None, ["data={name: file, path: /nowhere/rows.csv, target: a}"])
    assert ClientPictures().of(config) is None
    said = capsys.readouterr().err
    assert said.startswith("MLflow gets no picture of the clients (ConfigError: ")
    assert said.count("\n") == 1
