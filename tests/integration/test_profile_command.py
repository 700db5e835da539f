"""The command that shows where a run's time goes."""

import os
from pathlib import Path

import pytest
from forked import Forks


@pytest.mark.parametrize("backend", ["in_process", pytest.param("ray", marks=pytest.mark.slow)])
def test_the_command_shows_tables_and_draws(backend: str, forks: Forks, tmp_path: Path) -> None:
    words = ["rounds=40", f"clients.backend={backend}", "clients.actors=2", "clients.cpus_per_actor=0.5"]
    command = ["-m", "fedmbo_ray.run", *words, "--profile", "--out", str(tmp_path)]
    code, _, err = forks.run(*command, env=os.environ | {"COLUMNS": "200"})
    assert code == 0, err
    wanted = ("waiting for clients", "client actor 2") if backend == "ray" else ("computing", "this process")
    assert all(each in err for each in wanted)
    assert (tmp_path / "profile.html").read_text().startswith("<!doctype html>")
