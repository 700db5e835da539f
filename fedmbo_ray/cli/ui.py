"""fedmbo ui: serve MLflow's page for the sweeps and studies of this folder."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedmbo_ray.cli.command import Parser, guarded
from fedmbo_ray.core.errors import ConfigError, RunFailed
from fedmbo_ray.core.interruptions import at_stake

HOST = "127.0.0.1"  # not reachable from other machines
ENVIRONMENT = {
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # its helper processes
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PYTHONWARNINGS": "ignore",  # about MLflow's own code
}
SECONDS = 10  # for the server to end after a signal

HELP = """
Only this machine can open the page. From another machine, use a tunnel: ssh -L 5000:127.0.0.1:5000 MACHINE

Examples:
  fedmbo ui
  fedmbo ui --port 5001 --store other/mlflow.db
"""


def check_store(store: Path, port: int) -> None:
    """Raise a ConfigError unless the database exists and the port is free."""
    if not store.is_file():
        makers = "fedmbo tune, fedmbo study or fedmbo run --track"
        raise ConfigError(f"there is no MLflow database {store} yet: make one with {makers}")
    with store.open("rb") as file:
        if not file.read(16).startswith(b"SQLite format 3"):
            raise ConfigError(f"--store must be an MLflow database (SQLite), but {store} is not")
    if not 0 < port < 65536:
        raise ConfigError(f"--port must be between 1 and 65535, but got {port}")
    if answers(port):
        raise ConfigError(f"port {port} is in use on this machine: choose another with --port")


def answers(port: int) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex((HOST, port)) == 0


@contextmanager
def server(store: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """MLflow's server in its own process group, which is ended on exit."""
    command = [sys.executable, "-m", "mlflow", "ui", "--host", HOST, "--port", str(port), "--workers", "1"]
    command += ["--uvicorn-opts", "--log-level=warning", "--backend-store-uri", f"sqlite:///{store.absolute()}"]
    command += ["--default-artifact-root", str(store.absolute().parent / "mlartifacts")]
    env = {**os.environ, **ENVIRONMENT}
    process = subprocess.Popen(command, env=env, stdout=sys.stderr.fileno(), start_new_session=True)
    try:
        yield process
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):  # the second for processes that survive the first
            stop(process, number)


def stop(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    try:
        os.killpg(process.pid, number)
        process.wait(SECONDS)
    except (ProcessLookupError, subprocess.TimeoutExpired):
        pass


def serve(store: Path, port: int) -> None:
    """Serve until Ctrl-C; raises RunFailed if the server ends by itself."""
    print("starting MLflow", file=sys.stderr)
    with at_stake(), server(store, port) as process:
        while process.poll() is None and not answers(port):
            time.sleep(0.1)
        if process.poll() is None:
            print(f"MLflow: http://{HOST}:{port} (Ctrl-C ends it)", flush=True)
        code = process.wait()
    raise RunFailed(f"MLflow's server ended with exit code {code}")


def main(words: list[str] | None = None) -> int:
    parser = Parser("fedmbo_ray.ui", "Serve MLflow's page for the sweeps and studies of this folder.", HELP)
    parser.add_argument("--port", type=int, default=5000, help="the port of the page (default: 5000)")
    parser.add_argument("--store", type=Path, default=Path("mlflow.db"), help="the database (default: mlflow.db)")

    def work() -> int:
        args = parser.parse_args(words)
        check_store(args.store, args.port)
        try:
            serve(args.store, args.port)
        except KeyboardInterrupt:  # the way to end it
            print("MLflow ended", file=sys.stderr)
        return 0

    return guarded(work, lambda: "")
