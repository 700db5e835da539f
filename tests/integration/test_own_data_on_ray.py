"""Users' own data on Ray: the same bits as in one process, and a file that a node lacks is one line."""

from pathlib import Path

import numpy as np
import pytest
import torch
from own_files import blobs, table
from quick_runs import bits, last_record
from tasks import federation

from fedmbo_ray import run_experiment
from fedmbo_ray.backends.ray.pool import RayActors
from fedmbo_ray.config.overrides import read_config
from fedmbo_ray.core.errors import RunFailed
from fedmbo_ray.core.rng import stream
from fedmbo_ray.data import in_file
from fedmbo_ray.data.batches import Draw
from fedmbo_ray.data.in_file import InFile
from fedmbo_ray.problems.oracles import grad_y_lower
from fedmbo_ray.runs.build import build_task

WORDS = ["rounds=6", "clients.num_clients=4", "clients.cohort_size=4", "problem.backbone.width=8"]


def test_a_table_gives_the_same_bits_and_can_be_continued(cluster: str, tmp_path: Path) -> None:
    table().drop(columns=["colour", "sex"]).to_csv(tmp_path / "rows.csv", index=False)
    data = f"data={{name: file, path: {tmp_path}/rows.csv, target: kind, client: clinic}}"
    expected = bits(last_record(data, *WORDS, "--out", str(tmp_path / "here")))
    actors = ["clients.backend=ray", "clients.actors=2", "clients.cpus_per_actor=0.5"]
    half = run_experiment(data, *WORDS[1:], *actors, "rounds=3", out=tmp_path / "there")
    assert half.status == "finished"
    last = run_experiment(out=tmp_path / "there", resume=True, rounds=6).last
    assert bits(last) == expected


def test_rows_of_a_large_file(cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_file, "LARGE", 0)
    inputs, labels = blobs()
    np.savez(tmp_path / "rows.npz", inputs=inputs, targets=labels)
    task = build_task(read_config(None, [f"data={{name: file, path: {tmp_path}/rows.npz}}", *WORDS]))
    assert isinstance(task.data.inputs, InFile)
    x, y = task.problem.init(stream(0))

    def gradient(backend) -> torch.Tensor:
        clients = federation(task, 4, backend=backend, block_size=2).clients(stream(1))
        return clients.mean(grad_y_lower, clients.sample(), x, y, draw=Draw("train", 8))

    expected = gradient(federation(task, 4).backend)
    for there in (True, False):
        pool = RayActors(task, actors=1, cpus=0.5)
        try:
            if there:
                assert torch.equal(gradient(pool), expected)
                (tmp_path / "rows.npz").unlink()
            else:
                with pytest.raises(RunFailed, match=r"^data\.path must be on all nodes, but .* share$"):
                    gradient(pool)
        finally:
            pool.close()
