"""A real cluster of three hosts: `ray up`, a sweep from outside, the loss of a host in the middle, `ray down`."""

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hosts import NETWORK, ROOT, Host, Hosts, missing
from tasks import reference

from fedmbo_ray.sweeps.folder import SweepFolder
from fedmbo_ray.sweeps.schema import read_sweep

pytestmark = [
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
    pytest.mark.timeout(1000),
]

RAY = Path(sys.prefix) / "bin" / "ray"
ENTER = ". ~/fedmbo/cluster/environment.sh; "
SWEEP = """
rounds: 300
problem: {name: hyper_representation, backbone: {name: mlp, width: 64}, regularization: 0.001}
data: {name: digits, partition: {name: by_digits, digits: 2}, validation: 0.2}
clients: {num_clients: 50, cohort_size: 10, backend: ray, actors: 1}
algorithm:
  name: double_loop
  step_size: {grid: [0.01, 0.02, 0.05]}
  smoothness: auto
  lower: {name: minibatch_sgd, steps: 5, step_size: {grid: [0.5, 1.0]}, batch_size: 32}
  hypergradient: {name: phe, terms: 5, batch_size: 32}
record: {every: 20, checkpoint_every: 20}
tune: {search: grid, metric: upper_loss, mode: min}
"""
WHERE = """
import json
from ray.util.state import list_actors, list_nodes
where = {node.node_id: node.node_ip for node in list_nodes() if node.state == "ALIVE"}
actors = list_actors(filters=[("state", "=", "ALIVE"), ("class_name", "=", "ClientActor")], limit=1000, detail=True)
print(json.dumps({"nodes": sorted(where.values()), "actors": sorted(where.get(each.node_id, "") for each in actors)}))
"""
RESOURCES = """
import json, ray
ray.init(log_to_driver=False)  # else news of the autoscaler come between
print(json.dumps(ray.cluster_resources()))
"""
RUNS = """
import json
from mlflow import MlflowClient
client = MlflowClient()
experiment = client.get_experiment_by_name("a")
print(json.dumps([run.info.status for run in client.search_runs([experiment.experiment_id])]))
"""


def wait_for(what: str, there: Callable[[], Any], seconds: float) -> Any:
    deadline = time.monotonic() + seconds
    while True:
        found = there()
        if found:
            return found
        assert time.monotonic() < deadline, f"no {what} in {seconds:.0f} s"
        time.sleep(1)


class Cluster:
    """What a person has: a cluster.yaml, and the commands of Ray."""

    def __init__(self, hosts: Hosts, head: Host, workers: list[str]) -> None:
        config = yaml.safe_load((ROOT / "cluster.yaml").read_text())
        config["provider"] |= {"head_ip": head.address, "worker_ips": workers}
        config["auth"] = {"ssh_user": "root", "ssh_private_key": "~/.ssh/id_test"}
        self.hosts, self.head, self.file = hosts, head, hosts.folder / "cluster.yaml"
        self.file.write_text(yaml.safe_dump(config))

    def ray(self, command: str, *words: str) -> subprocess.CompletedProcess:
        line = shlex.join([str(RAY), command, *words])
        return self.hosts.seat.run("bash", "-c", f"cd {ROOT} && {line} 2>&1")

    def up(self) -> subprocess.CompletedProcess:
        return self.ray("up", str(self.file), "--yes", "--no-config-cache")

    def execute(self, line: str) -> str:
        """As the person would, on the head."""
        done = self.ray("exec", str(self.file), line)
        assert done.returncode == 0, done.stdout[-3000:]
        return done.stdout

    def on_head(self, line: str) -> str:
        return self.head.run("bash", "-c", ENTER + line).stdout

    def asked(self, program: str) -> Any:
        said = self.on_head(f"python -c {shlex.quote(program)} 2>/dev/null").strip().splitlines()
        return json.loads(said[-1]) if said else None


def where(cluster: Cluster) -> dict[str, list[str]]:
    """The addresses of all nodes, and of every actor of clients, from Ray's state."""
    return cluster.asked(WHERE) or {"nodes": [], "actors": []}


def ray_processes(host: Host) -> list[str]:
    names = ("raylet", "gcs_server", "ray::", "monitor.py", "dashboard.py")
    return [line for line in host.processes().splitlines() if any(name in line for name in names)]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Of the hosts; no process may still run there at the end, and no mount be left."""
    yield tmp_path
    wait_for("end of all processes", lambda: not those_in(tmp_path), 60)
    assert str(tmp_path) not in Path("/proc/mounts").read_text()


def those_in(folder: Path) -> list[str]:
    """The command lines of other processes that name a folder."""
    found, own = [], f"/proc/{os.getpid()}/cmdline"
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            found.append("" if str(process) == own else process.read_bytes().decode("utf8", "replace"))
    return [words for words in found if str(folder) in words]


def test_a_sweep_survives_the_loss_of_a_host(folder: Path) -> None:
    with Hosts(folder / "hosts", 4) as hosts:
        head, *others, fourth = hosts.machines
        cluster = Cluster(hosts, head, [host.address for host in others])
        others[0].run("bash", "-c", "echo '{\"fast\": 3}' > ~/resources.json", check=True)
        started = cluster.up()
        assert started.returncode == 0, started.stdout[-4000:]
        wait_for("cluster of three", lambda: len(where(cluster)["nodes"]) == 3, 150)
        assert cluster.asked(RESOURCES)["fast"] == 3
        only_the_head_itself_reaches_mlflow(head, others[0])
        cluster.execute(f"{ENTER} python -m fedmbo_ray.cluster add ~/ray_bootstrap_config.yaml {fourth.address}")
        wait_for("fourth node", lambda: fourth.address in where(cluster)["nodes"], 60)
        sweep = run_and_kill(cluster, others[1])
        assert set(cluster.asked(RUNS)) == {"FINISHED"}
        fetched = folder / "fetched"
        fetch(cluster, sweep, fetched)
        ended = cluster.ray("down", str(cluster.file), "--yes")
        assert ended.returncode == 0, ended.stdout[-2000:]
        for host in (head, others[0], fourth):
            wait_for(f"end of Ray on {host.name}", lambda host=host: not ray_processes(host), 150)
    equals_that_of_one_machine(fetched, folder)


def only_the_head_itself_reaches_mlflow(head: Host, other: Host) -> None:
    wait_for("MLflow", lambda: knocks(head, "127.0.0.1", 5000), 90)
    for port in (5000, 8265):
        assert knocks(head, "127.0.0.1", port)
        assert not knocks(other, head.address, port)


def knocks(host: Host, address: str, port: int) -> bool:
    return host.run("bash", "-c", f"< /dev/tcp/{address}/{port}").returncode == 0


def run_and_kill(cluster: Cluster, victim: Host) -> str:
    """Submit the sweep, and pull the plug of a host that computes; returns the sweep's folder on the head."""
    cluster.head.run("bash", "-c", "cat > ~/fedmbo-work/a.yaml", input=SWEEP)
    job = "bash -c 'cd ~/fedmbo-work && python -m fedmbo_ray.tune a.yaml --out sweeps/a'"
    cluster.execute(f"ray job submit --no-wait --submission-id a -- {job}")
    waiting, held = list(cluster.hosts.machines), []

    def all_are_held() -> bool:
        """Each host stops at a trial's first checkpoint, so that all can be seen at once, on a machine of any speed."""
        for host in [host for host in waiting if has_saved(cluster, host)]:
            signal_trial(host, "STOP")
            if host.address in where(cluster)["actors"]:
                waiting.remove(host)
                held.append(host)
            else:  # the trial came to its end in the meantime: the next one
                signal_trial(host, "CONT")
        return not waiting

    wait_for("checkpoint on every host", all_are_held, 300)
    assert where(cluster)["actors"] == sorted(host.address for host in held)
    victim.kill()
    for host in held:
        if host is not victim:
            signal_trial(host, "CONT")
    status = wait_for("end of the sweep", lambda: ended(cluster.on_head("ray job status a 2>&1")), 400)
    assert status == "succeeded", cluster.on_head("ray job logs a 2>&1")[-4000:]
    return "~/fedmbo-work/sweeps/a"


def has_saved(cluster: Cluster, host: Host) -> bool:
    """Whether the head has a checkpoint of a trial on this host that has not ended."""
    here = f"grep -l {host.name}/ ~/fedmbo-work/sweeps/a/trials/*/system.jsonl | xargs -r -n 1 dirname"
    seed = "$trial/seed_000"
    saved = f"grep -q status {seed}/records.jsonl || ls {seed}/checkpoints/*.npz"
    return bool(cluster.on_head(f"for trial in $({here}); do {saved}; done 2> /dev/null"))


def signal_trial(host: Host, name: str) -> None:
    host.run("pkill", f"-{name}", "-f", "^ray::ImplicitFunc", check=True)  # as Tune calls it


def ended(said: str) -> str:
    return next((word for word in ("succeeded", "failed", "stopped") if f"' {word}" in said.lower()), "")


def fetch(cluster: Cluster, sweep: str, to: Path) -> None:
    """By the command that the manual gives."""
    here = cluster.hosts.seat.home / "fetched"
    done = cluster.ray("rsync-down", str(cluster.file), f"{sweep}/", f"{here}/")
    assert done.returncode == 0, done.stdout[-2000:]
    to.mkdir()
    packed = cluster.hosts.seat.run("tar", "-C", str(here), "-c", ".", text=False)
    subprocess.run(["tar", "-x", "-C", str(to)], input=packed.stdout, check=True)


def equals_that_of_one_machine(fetched: Path, folder: Path) -> None:
    (folder / "a.yaml").write_text(SWEEP)
    alone = read_sweep(folder / "a.yaml", ["clients.backend=in_process"])
    there, here = SweepFolder(fetched), reference(alone, folder / "alone")
    assert digests(there) == digests(here)
    best = [yaml.safe_load(sweep.best_file.read_text()) for sweep in (there, here)]
    assert best[0]["algorithm"] == best[1]["algorithm"]
    for trial in there.trials():
        rounds = [record["round"] for record in trial.run(0).records()]
        assert rounds == sorted(set(rounds))
        assert [each["round"] for each in trial.system()].count(0) == 1, "it began anew instead of going on"


def digests(sweep: SweepFolder) -> dict[str, list[str]]:
    trials = {trial.name: [last["x_sha256"] for last in trial.lasts()] for trial in sweep.trials()}
    assert len(trials) == 6
    return trials


def test_a_machine_that_can_not_take_part_is_named_and_nothing_is_started(folder: Path) -> None:
    with Hosts(folder / "hosts", 4) as hosts:
        head, old, locked, full = hosts.machines
        other = "#!/bin/sh\necho '@@ 3.10.1 99999999999'\n"
        old.run("bash", "-c", "rm ~/bin/python3; cat > ~/bin/python3; chmod +x ~/bin/python3", input=other, check=True)
        locked.run("bash", "-c", "rm ~/.ssh/authorized_keys", check=True)
        full.run("bash", "-c", "fallocate --length 5G ~/large", check=True)
        nobody = f"{NETWORK}.99"
        cluster = Cluster(hosts, head, [old.address, locked.address, full.address, nobody])
        started = cluster.up()
        assert started.returncode != 0
        (line,) = (line for line in started.stdout.splitlines() if line.startswith("error: "))
        for said in (
            f"{old.address} has Python 3.10.1, but all machines must have the head's",
            f"{locked.address} does not let root in with the key",
            f"{full.address} has 1.",
            f"{nobody} can't be reached by SSH",
        ):
            assert said in line
        assert [ray_processes(host) for host in hosts.machines] == [[], [], [], []]
