"""The first sweep of a new user leads to what the README says, wherever it runs."""

import re
from pathlib import Path

import pytest
from checkout import ROOT
from tasks import reference

from fedmbo_ray.core.io import SHIPPED
from fedmbo_ray.sweeps.ranking import ranked
from fedmbo_ray.sweeps.schema import read_sweep


@pytest.mark.timeout(300)
def test_the_best_point_is_the_one_that_is_printed(tmp_path: Path) -> None:
    sweep = read_sweep(SHIPPED / "quickstart.yaml", [])
    best = ranked(reference(sweep, tmp_path / "sweep"), sweep.tune)[0]
    found = {path: str(value) for path, value in best.point.items()}
    for file in ("README.md", "docs/sweeps.md", "tune_configs/quickstart.yaml"):
        text = " ".join((ROOT / file).read_text().replace("# ", "").split())
        alpha, beta, score = re.search(
            r"α = ([\d.]+), β = ([\d.]+),? with a validation loss (?:\S+ )?of (0\.\d+)", text
        ).groups()
        assert (alpha, beta) == (found["algorithm.step_size"], found["algorithm.lower.step_size"]), file
        assert score == f"{best.score:.4f}", file
