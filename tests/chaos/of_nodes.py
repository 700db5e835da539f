"""Faults of a node of a cluster, of two hosts within this machine: lost, or cut off from the network and back."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hosts import PATH, ROOT, Host, Hosts, missing
from kinds import KINDS
from suffering import MARK, WORDS, Check, Ended, Suffering, Wrong, lines, right

RAY = Path(sys.prefix) / "bin" / "ray"
HEALTH = {  # a lost node is noticed in some seconds
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 2000,
    "health_check_failure_threshold": 3,
}
SPREAD = ("rounds=400", "record.every=50", "clients.backend=ray", "clients.actors=2", "clients.cpus_per_actor=1")


@contextmanager
def two_nodes(s: Suffering) -> Iterator[Hosts]:
    """Two hosts with a cluster of Ray's on them; what they share is the folder of the hosts."""
    with Hosts(s.folder / "hosts", 2) as hosts:
        head, other = hosts.machines
        words = [f"--node-ip-address={head.address}", "--port=6379", "--num-cpus=2", "--include-dashboard=false"]
        on(s, head, RAY, "start", "--head", *words, f"--system-config={json.dumps(HEALTH)}")
        on(
            s,
            other,
            RAY,
            "start",
            f"--address={head.address}:6379",
            f"--node-ip-address={other.address}",
            "--num-cpus=1",
        )
        yield hosts


def surroundings(s: Suffering, host: Host) -> dict[str, str]:
    own = {"HOME": str(host.home), "PATH": PATH, "LANG": "C.UTF-8", "PYTHONPATH": str(ROOT), MARK: s.mark}
    return {**own, "RAY_AUTH_MODE": "disabled", "OMP_NUM_THREADS": "1", "RAY_worker_niceness": "0"}


def on(s: Suffering, host: Host, *words: object) -> None:
    done = host.run(*(str(word) for word in words), env=surroundings(s, host))
    if done.returncode != 0:
        raise Wrong(f"no node on {host.name}: {done.stdout[-1000:]} {done.stderr[-1000:]}")


def begun(s: Suffering, head: Host) -> subprocess.Popen[str]:
    """A run on both nodes, which has made some progress."""
    s.out = s.folder / "hosts" / "run"
    command = [sys.executable, "-m", "fedmbo_ray.run", *WORDS, *SPREAD, "--json", "--out", str(s.out)]
    enter = ["nsenter", "-t", str(head.first_process), "--all"]
    environment = {**surroundings(s, head), "RAY_ADDRESS": f"{head.address}:6379"}
    pipe = subprocess.PIPE
    process = subprocess.Popen([*enter, *command], env=environment, stdout=pipe, stderr=pipe, text=True, cwd="/")
    deadline, wanted = time.monotonic() + 120, int(s.rng.integers(1, 8))
    while process.poll() is None and lines(s.out / "records.jsonl") < wanted:
        if time.monotonic() > deadline:
            raise Wrong("no progress in two minutes")
        time.sleep(0.01)
    return process


def ended(process: subprocess.Popen[str]) -> Ended:
    out, err = process.communicate(timeout=280)
    return Ended(process.returncode, out, err)


def lost(s: Suffering) -> str:
    """The plug is pulled."""
    with two_nodes(s) as hosts:
        process = begun(s, hosts.machines[0])
        hosts.machines[1].kill()
        right(ended(process), s.out, (*WORDS, *SPREAD[:2]))
    return "right"


def cut_off(longest: float) -> Check:
    """The cable is out for some seconds: Ray takes the node for lost if it is long."""

    def check(s: Suffering) -> str:
        with two_nodes(s) as hosts:
            process = begun(s, hosts.machines[0])
            hosts.cable(hosts.machines[1], "down")
            time.sleep(float(s.rng.uniform(longest / 3, longest)))
            hosts.cable(hosts.machines[1], "up")
            right(ended(process), s.out, (*WORDS, *SPREAD[:2]))
        return "right"

    return check


if missing() is None and os.geteuid() == 0:
    KINDS["node lost"] = lost
    KINDS["node cut off for a moment"] = cut_off(3)
    KINDS["node cut off for long"] = cut_off(30)
