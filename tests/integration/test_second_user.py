"""A run on a local Ray, seen from other machines and by another user of this one: nothing of it can be reached."""

import json
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
from forked import Forks
from quick_runs import QUICK
from second_user import SecondUser
from test_run import wait_for_round

TRIES = """
import json, os, socket, sys

def attempt(action):
    try:
        action()
    except OSError as error:
        return type(error).__name__
    return "done"

def connect(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as end:
        end.connect(path)

asked = json.loads(sys.argv[1])
found = {path: attempt(lambda: os.listdir(path)) for path in asked["folders"]}
found |= {path: attempt(lambda: open(path)) for path in asked["files"]}
found |= {path: attempt(lambda: connect(path)) for path in asked["sockets"]}
print(json.dumps(found))
"""
ASKS = """
import json, sys
from ray._raylet import GcsClient

try:
    found = [key.decode(errors="replace") for key in GcsClient(address=sys.argv[1]).internal_kv_keys(b"", None, 5)]
except Exception as error:
    found = type(error).__name__
print(json.dumps(found))
"""
TOLD = """
import json, sys
from ray._raylet import GcsClient

print(json.dumps(GcsClient(address=sys.argv[1]).internal_kv_get(b"dashboard", b"dashboard", 5).decode()))
"""
JOINS = """
import json, sys
import ray

try:
    ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
    print(json.dumps("joined"))
except Exception as error:
    print(json.dumps(type(error).__name__))
"""
ANSWERS = """
import json, sys, urllib.error, urllib.request

def status(port, path):
    try:
        return urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", data=b"{}", timeout=10).status
    except urllib.error.HTTPError as error:
        return error.code

print(json.dumps({port: status(port, path) for port, path in json.loads(sys.argv[1])}))
"""
CALLS = """
import json, sys
import grpc

def code(port, method):
    try:
        grpc.insecure_channel(f"127.0.0.1:{port}").unary_unary(method)(b"", timeout=10)
    except grpc.RpcError as error:
        return error.code().name
    return "OK"

ports, methods = json.loads(sys.argv[1])
print(json.dumps([[code(port, method) for method in methods] for port in ports]))
"""
METHODS = [  # one of each of Ray's services; a port has one of them
    "/ray.rpc.NodeInfoGcsService/GetAllNodeInfo",
    "/ray.rpc.NodeManagerService/GetNodeStats",
    "/ray.rpc.ObjectManagerService/Pull",
    "/ray.rpc.CoreWorkerService/GetCoreWorkerStats",
    "/ray.rpc.ReporterService/HealthCheck",
]
HERE = {"127.0.0.1", "::1", "::ffff:127.0.0.1"}
AS_HERE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # or Ray replaces 127.0.0.1 by an address where nothing listens


class Going(NamedTuple):
    """A run under way on a Ray of its own, everything that it makes below one folder that all may open."""

    place: Path
    pid: int

    @property
    def session(self) -> Path:
        return next((self.place / f"fedmbo-{os.getuid()}" / "ray").glob("session_2*"))

    def port(self, name: str) -> str:
        return next(self.session.glob(f"{name}_port_*")).read_text()

    def listeners(self) -> set[tuple[str, int]]:
        """The addresses at which it or one of its processes listens."""
        family = [psutil.Process(self.pid), *psutil.Process(self.pid).children(recursive=True)]
        found = [each.laddr for process in family for each in process.net_connections("tcp") if each.status == "LISTEN"]
        return {(address.ip, address.port) for address in found}

    def token(self) -> str:
        return psutil.Process(self.pid).children()[0].environ()["RAY_AUTH_TOKEN"]


@pytest.fixture(scope="module")
def going(forks: Forks) -> Iterator[Going]:
    place = Path(tempfile.mkdtemp(prefix="open-", dir="/tmp"))  # sockets' paths must be short
    place.chmod(0o755)
    env = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    env |= {"RAY_TMPDIR": str(place), "TMPDIR": str(place)}
    words = [*QUICK, "clients.backend=ray", "clients.cpus_per_actor=0.5", "rounds=100000000"]
    process = forks.start("-m", "fedmbo_ray.run", *words, "--out", str(place / "run"), env=env)
    try:
        wait_for_round(place / "run", 2)
        yield Going(place, process.pid)
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(place)


@pytest.fixture(scope="module")
def second_user(going: Going) -> SecondUser:
    return SecondUser(going.place)


def test_all_of_a_local_ray_listens_on_loopback_alone(going: Going) -> None:
    found = going.listeners()
    assert len(found) > 5  # Ray's store, its raylet, its agents, the driver and the actors
    assert {address for address, _ in found} <= HERE
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        end.connect(("192.0.2.1", 9))  # sends nothing: tells which address of this machine would be used
        own = end.getsockname()[0]
    if own not in HERE:
        for _, port in found:
            with socket.socket() as end:
                assert end.connect_ex((own, port)) != 0


def test_another_user_opens_neither_folders_nor_sockets(going: Going, second_user: SecondUser) -> None:
    sockets = [*going.place.glob("fedmbo-*/socket"), *(going.session / "sockets").iterdir()]
    assert len(sockets) >= 2  # of Ray's store and its raylet; that of an actor is gone when it has connected
    folders = [going.place / "run", going.session.parent, going.session, going.session / "logs"]
    files = [going.place / "run" / "records.jsonl", going.session / "logs" / "raylet.out"]
    assert all(path.exists() for path in (*folders, *files))
    asked = {"folders": folders, "files": files, "sockets": sockets}
    found = second_user.run(TRIES, json.dumps(asked, default=str))
    assert set(found.values()) == {"PermissionError"}
    assert len(found) == len(folders) + len(files) + len(sockets)


@pytest.mark.timeout(300)  # Ray tries for 20 s
def test_another_user_can_not_join_without_the_token(going: Going, second_user: SecondUser) -> None:
    address = f"127.0.0.1:{going.port('gcs_server')}"
    wrong, right = ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": each} for each in ("0" * 64, going.token()))
    assert second_user.run(ASKS, address) == second_user.run(ASKS, address, **wrong) == "AuthenticationError"
    assert second_user.run(JOINS, address, **AS_HERE) == "ConnectionError"
    assert isinstance(second_user.run(ASKS, address, **right), list)  # it was the token, not the address


def test_rays_agents_ask_another_user_for_the_token(going: Going, second_user: SecondUser) -> None:
    ports = {"runtime_env_agent": "/get_or_create_runtime_env", "dashboard_agent_listen": "/api/job_agent/jobs/"}
    there = {name for name in ports if list(going.session.glob(f"{name}_port_*")) and int(going.port(name)) > 0}
    asked = [(going.port(name), path) for name, path in ports.items() if name in there]  # else it serves nobody
    found = second_user.run(ANSWERS, json.dumps(asked))
    assert set(found.values()) == {401}


def test_a_local_ray_has_neither_autoscaler_nor_dashboard_nor_reader_of_logs(going: Going) -> None:
    names = {each.name() for each in psutil.Process(going.pid).children(recursive=True)}
    agents = {"ray::DashboardAgent", "ray::RuntimeEnvAgent"}
    assert {name for name in names if name in agents or "::" not in name} == {"gcs_server", "raylet", *agents}


def test_rays_agents_tell_what_happens_to_nobody(going: Going, second_user: SecondUser) -> None:
    """They would send it, and the token, to whoever listens at this address; nobody can have port 0."""
    gcs, right = f"127.0.0.1:{going.port('gcs_server')}", {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": going.token()}
    assert second_user.run(TOLD, gcs, **right) == "127.0.0.1:0"


def test_none_of_rays_services_serves_another_user(going: Going, second_user: SecondUser) -> None:
    pytest.importorskip("grpc")
    ports = [port for address, port in going.listeners() if ":" in address]  # gRPC's sockets are of both kinds
    found = second_user.run(CALLS, json.dumps([ports, METHODS]))
    assert all(set(codes) == {"UNAUTHENTICATED", "UNIMPLEMENTED"} for codes in found)
    assert all("UNAUTHENTICATED" in codes for codes in zip(*found, strict=True))  # every service was met
