"""`fedmbo ui` with a real MLflow: it answers, says when a port is taken, and ends with all its processes."""

import os
import signal
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

from fedmbo_ray.cli.ui import main


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def test_without_a_database_it_says_what_to_run_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([]) == 2
    assert capsys.readouterr().err.startswith(
        "error: there is no MLflow database mlflow.db yet: make one with fedmbo tune"
    )
    Path("notes.txt").write_text("not a database")
    assert main(["--store", "notes.txt"]) == 2
    assert "must be an MLflow database" in capsys.readouterr().err


def test_a_port_that_is_taken_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "mlflow.db"
    with sqlite3.connect(store) as database:
        database.execute("create table one (two)")
    database.close()
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert main(["--store", str(store), "--port", str(port)]) == 2
    assert capsys.readouterr().err == f"error: port {port} is in use on this machine: choose another with --port\n"


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_the_page_is_there_until_it_is_interrupted(number: int, tmp_path: Path) -> None:
    from mlflow import MlflowClient

    MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}").create_experiment("seen by fedmbo ui")
    port = free_port()
    line = [sys.executable, "-m", "fedmbo_ray", "ui", "--port", str(port)]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    with subprocess.Popen(line, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as ui:
        assert ui.stdout is not None
        assert ui.stdout.readline() == f"MLflow: http://127.0.0.1:{port} (Ctrl-C ends it)\n"
        found = urlopen(
            f"http://127.0.0.1:{port}/ajax-api/2.0/mlflow/experiments/get-by-name?experiment_name=seen%20by%20fedmbo%20ui"
        )
        assert found.status == 200
        ui.send_signal(number)
        said = ui.communicate(timeout=60)[1]
    assert ui.returncode == 0, said
    assert said.splitlines()[-1] == "MLflow ended"
    with pytest.raises(OSError, match="refused"):
        urlopen(f"http://127.0.0.1:{port}")
