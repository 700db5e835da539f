"""Faults of MLflow's server, as seen from runs and sweeps: it is away, slow, hangs, answers 500, loses its answers."""

import json
import select
import socket
import struct
import threading
import time
from contextlib import suppress
from pathlib import Path

from forked import Forked
from kinds import KINDS
from mlflow import MlflowClient
from of_sweeps import SWEEP, all_right, nothing_doubled
from servers import free_port, served
from suffering import WORDS, Check, Ended, Suffering, Wrong, lines, right

FAILED = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
CUT_OFF = struct.pack("ii", 1, 0)  # close at once, with a reset


class Relay(threading.Thread):
    """Between commands and a server; `fault` says how it treats them: `none`, or one of FAULTS."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.port, self.fault, self.over = port, "none", False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.uri = f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def run(self) -> None:
        with suppress(OSError):  # it was closed
            while True:
                near, _ = self.listener.accept()
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def close(self) -> None:
        self.over = True
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def _serve(self, near: socket.socket) -> None:
        with near, suppress(OSError):
            if self.fault == "away":
                reset(near)
                return
            with socket.create_connection(("127.0.0.1", self.port)) as far:
                while not self.over:
                    ready, _, _ = select.select([near, far], [], [], 0.2)
                    for each in ready:
                        data = each.recv(2**16)
                        if not data:
                            return
                        if not (self._asked(near, far, data) if each is near else self._answered(near, data)):
                            return

    def _asked(self, near: socket.socket, far: socket.socket, data: bytes) -> bool:
        """Whether the connection goes on after a piece of a question."""
        while self.fault == "hanging" and not self.over:
            time.sleep(0.1)
        if self.fault == "away":
            reset(near)
            return False
        if self.fault == "answering 500":
            near.sendall(FAILED)
            return False
        if self.fault == "slow":
            time.sleep(1.5)
        far.sendall(data)
        return True

    def _answered(self, near: socket.socket, data: bytes) -> bool:
        """Whether the connection goes on after a piece of an answer."""
        if self.fault == "losing its answers":
            reset(near)
            return False
        near.sendall(data)
        return True


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, CUT_OFF)


FAULTS = ("away", "slow", "hanging", "answering 500", "losing its answers")


def faulty(fault: str) -> Check:
    """The fault lasts for some seconds, from a moment before or within the command."""

    def check(s: Suffering) -> str:
        port = free_port()
        with served(f"sqlite:///{s.folder}/mlflow.db", s.folder / "files", port):
            relay = Relay(port)
            relay.start()
            s.tracking = relay.uri
            try:
                return (a_sweep if s.rng.random() < 0.5 else a_run)(s, relay, fault)
            finally:
                relay.close()

    return check


def suffered(s: Suffering, relay: Relay, fault: str, process: Forked, path: Path, most: int) -> Ended:
    """The fault comes when there are so many records, and goes after some seconds."""
    wanted = int(s.rng.integers(most))
    while process.poll() is None and lines(path) < wanted:
        time.sleep(0.01)
    relay.fault = fault
    time.sleep(float(s.rng.uniform(1, 10)))
    relay.fault = "none"
    return Ended(*process.finish())


def a_sweep(s: Suffering, relay: Relay, fault: str) -> str:
    process = s.start(*SWEEP.words, "--out", str(s.out), command="tune")
    ended = suffered(s, relay, fault, process, s.out / SWEEP.first, 9)
    return all_right(ended, s, SWEEP)


def a_run(s: Suffering, relay: Relay, fault: str) -> str:
    process = s.start(*WORDS, "--out", str(s.out), "--track", "--json")
    ended = suffered(s, relay, fault, process, s.out / "records.jsonl", 9)
    right(ended, s.out)
    nothing_doubled(s.folder)
    client = MlflowClient(f"sqlite:///{s.folder}/mlflow.db")
    runs = [run for each in client.search_experiments() for run in client.search_runs([each.experiment_id])]
    if [run.info.status for run in runs] != ["FINISHED"]:
        raise Wrong(f"MLflow has the runs {[(run.info.run_name, run.info.status) for run in runs]}: {ended.err}")
    history = client.get_metric_history(runs[0].info.run_id, "upper_loss")
    rows = [json.loads(line) for line in (s.out / "records.jsonl").read_text().splitlines()]
    if [(each.step, each.value) for each in history] != [(row["round"], row["upper_loss"]) for row in rows]:
        raise Wrong(f"MLflow has other records: {[(each.step, each.value) for each in history]}")
    return "right"


for fault in FAULTS:
    KINDS[f"MLflow {fault}"] = faulty(fault)
