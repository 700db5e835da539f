"""What MLflow shows of a run's clients: a picture, the tables of `fedmbo data`, and how much they differ."""

import io
import sys
from typing import NamedTuple

from rich.console import Console

from fedmbo_ray.config.schema import DataConfig, RunConfig
from fedmbo_ray.core.errors import first_line
from fedmbo_ray.data.dataset import Dataset
from fedmbo_ray.runs.build import allotted
from fedmbo_ray.runs.spread import Spread, spread_of
from fedmbo_ray.runs.spread_tables import show

PICTURE, TABLES = "clients.png", "clients.txt"
WIDTH = 120  # of the tables, in characters


class ClientPicture(NamedTuple):
    """What data the clients have in one line, files by name, and numbers by name."""

    title: str
    files: dict[str, bytes]
    numbers: dict[str, float]


class ClientPictures:
    """Makes pictures of clients, each once."""

    def __init__(self) -> None:
        self._made: dict[str | None, ClientPicture | None] = {}

    def of(self, config: RunConfig, dataset: Dataset | None = None) -> ClientPicture | None:
        """The picture of a run's clients; None if there is no data set, or if it can't be made, which is printed.

        `dataset` is that of the config, if it is loaded already. No error is raised: a run does not need its picture.
        """
        key = what_clients_have(config)
        if key not in self._made and config.data is not None:
            try:
                self._made[key] = made_picture(config, config.data, dataset or config.data.load())
            except Exception as error:
                said = f"{type(error).__name__}: {first_line(error)}"
                print(f"MLflow gets no picture of the clients ({said})", file=sys.stderr)
                self._made[key] = None
        return self._made.get(key)


def what_clients_have(config: RunConfig) -> str | None:
    """All that decides how data are spread over clients, as text; None if the problem makes its own data."""
    if config.data is None:
        return None
    return f"{config.seed} {config.clients.num_clients} {config.data.model_dump_json()}"


def made_picture(config: RunConfig, data: DataConfig, dataset: Dataset) -> ClientPicture:
    from fedmbo_ray.runs.spread_picture import drawn  # matplotlib takes half a second to import

    spread = spread_of(data, allotted(data, dataset, config.seed, config.clients.num_clients))
    distance = "number_distance" if spread.edges else "label_distance"
    numbers = {f"clients/{distance}": spread.label_distance(), "clients/size_variation": spread.size_variation()}
    return ClientPicture(spread.title, {PICTURE: drawn(spread, "png"), TABLES: tables(spread).encode()}, numbers)


def tables(spread: Spread) -> str:
    """What `fedmbo data` prints, without colours and without gradients, which take longer."""
    console = Console(file=io.StringIO(), width=WIDTH, record=True, force_jupyter=False)
    show(spread, console)
    return console.export_text()
