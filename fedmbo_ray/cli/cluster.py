"""fedmbo cluster: check whether the machines of a cluster.yaml can be started, and add one.

`ray up` alone tries a machine that does not answer for a quarter of an hour, and reports nothing about the workers.
"""

import platform
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from fedmbo_ray.cli.command import Parser, guarded
from fedmbo_ray.core.errors import ConfigError, RunFailed
from fedmbo_ray.core.io import read_yaml

HELP = """
Examples:
  fedmbo cluster check cluster.yaml
  fedmbo cluster workers ~/ray_bootstrap_config.yaml          on the head; `ray up` calls it
  fedmbo cluster add ~/ray_bootstrap_config.yaml 10.0.0.13    on the head, while the cluster runs

Exit codes: 0 all machines are ready, 2 a machine is not ready (one line for each machine).
"""

EXAMPLE = "192.0.2."  # addresses that are reserved for documentation
GIGABYTES = 4.0  # for the environment of a machine, and some room for data
SECONDS = 10  # for a machine to answer
OPTIONS = {
    "BatchMode": "yes",
    "ConnectTimeout": str(SECONDS),
    "IdentitiesOnly": "yes",
    "StrictHostKeyChecking": "no",  # as `ray up` does it
    "UserKnownHostsFile": "/dev/null",
    "LogLevel": "ERROR",
}
QUESTION = """python3 -c 'import platform, shutil, os
print("@@", platform.python_version(), shutil.disk_usage(os.path.expanduser("~")).free)'"""


class Machine(NamedTuple):
    """What a machine reports about itself."""

    python: str
    free: int  # bytes on the disk of the user's home


class Addresses(NamedTuple):
    """Where the machines are."""

    head: str
    workers: list[str]


class Door(NamedTuple):
    """How to log in to the machines."""

    user: str
    key: str | None

    def command(self, host: str, words: str) -> list[str]:
        options = [word for name, value in OPTIONS.items() for word in ("-o", f"{name}={value}")]
        key = ["-i", str(Path(self.key).expanduser())] if self.key else []
        return ["ssh", *options, *key, f"{self.user}@{host}", words]

    def ask(self, host: str) -> Machine | str:
        """What a machine reports, or what is wrong with it."""
        try:
            command = self.command(host, f"bash --login -c {shlex.quote(QUESTION)}")
            ended = subprocess.run(command, capture_output=True, text=True, timeout=3 * SECONDS)
        except subprocess.TimeoutExpired:
            return f"did not answer within {3 * SECONDS} s"
        except FileNotFoundError:
            raise ConfigError("ssh must be installed on this machine, but is not") from None
        said = next((line.split()[1:] for line in ended.stdout.splitlines() if line.startswith("@@ ")), None)
        if said is not None:
            return Machine(said[0], int(said[1]))
        return self._explained(ended.stderr.strip() or ended.stdout.strip() or "no message")

    def bring(self, host: str, path: str) -> None:
        """Copy one of the user's files or folders to the same place on another machine."""
        local = str(Path(path).expanduser()) + ("/" if path.endswith("/") else "")
        self.run(host, f"mkdir -p {quoted_home(str(Path(path).parent if not path.endswith('/') else path))}")
        shell = shlex.join(self.command(host, "")[:-2])
        there = f"{self.user}@{host}:{path.removeprefix('~/')}"
        call(host, ["rsync", "--archive", "--exclude", "__pycache__/", "--rsh", shell, local, there])

    def run(self, host: str, words: str) -> None:
        call(host, self.command(host, f"bash --login -c {shlex.quote(words)}"))

    def _explained(self, said: str) -> str:
        last = " ".join(said.splitlines()[-1].split())
        if "Permission denied" in said:
            return f"does not let {self.user} in with the key {self.key} ({last})"
        if "python3" in said:
            return f"has no python3 ({last})"
        return f"can't be reached by SSH ({last})"


def call(host: str, command: list[str]) -> None:
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode:
        last = (ended.stderr.strip() or ended.stdout.strip() or "no message").splitlines()[-1]
        raise RunFailed(f"{host} could not be added: {command[0]} ended with exit code {ended.returncode} ({last})")


def quoted_home(path: str) -> str:
    """A path that a shell on another machine finds in its own home."""
    return '"$HOME"/' + shlex.quote(path.removeprefix("~/").removeprefix("~") or ".")


def trouble(machine: Machine | str, python: str | None) -> str | None:
    """Why a machine can't join the cluster, or None; all must have exactly the head's version of Python."""
    if isinstance(machine, str):
        return machine
    if python is not None and machine.python != python:
        return f"has Python {machine.python}, but all machines must have the head's: {python}"
    if tuple(map(int, machine.python.split(".")[:2])) < (3, 11):
        return f"has Python {machine.python}, but it must be 3.11 or newer"
    if machine.free < GIGABYTES * 1e9:
        return f"has {machine.free / 1e9:.1f} GB free on its disk, but {GIGABYTES:g} GB are needed"
    return None


def ask_all(hosts: list[str], door: Door, python: str | None) -> None:
    """Print the state of each machine; raise a ConfigError that names those that can't take part."""
    with ThreadPoolExecutor(max_workers=32) as threads:
        answers = list(threads.map(door.ask, hosts))
    found = {host: trouble(answer, python) for host, answer in zip(hosts, answers, strict=True)}
    for host, wrong in found.items():
        print(f"{host}: {wrong or 'ready'}", file=sys.stderr)
    wrong_ones = [f"{host} {wrong}" for host, wrong in found.items() if wrong]
    if wrong_ones:
        raise ConfigError(f"no cluster was started: {'; '.join(wrong_ones)}")


def read(path: Path) -> tuple[Addresses, Door]:
    """The addresses of the machines in a cluster.yaml, and how to log in to them."""
    config = read_yaml(path)
    provider, auth = (section(config, name, path) for name in ("provider", "auth"))
    if provider.get("type") != "local":
        raise ConfigError(f"provider.type must be 'local' to be checked, but {path} has {provider.get('type')!r}")
    for name, given in (("provider.head_ip", provider), ("provider.worker_ips", provider), ("auth.ssh_user", auth)):
        if not given.get(name.partition(".")[2]):
            raise ConfigError(f"{name}: is required in {path}")
    if not isinstance(provider["worker_ips"], list):
        raise ConfigError(f"provider.worker_ips: must be a list in {path}, but is {provider['worker_ips']!r}")
    key = auth.get("ssh_private_key")
    machines = Addresses(str(provider["head_ip"]), [str(host) for host in provider["worker_ips"]])
    example = [host for host in (machines.head, *machines.workers) if host.startswith(EXAMPLE)]
    if example:
        raise ConfigError(f"{path} must have the addresses of your machines, but has {example[0]}, an example")
    return machines, Door(str(auth["ssh_user"]), str(key) if key else None)


def section(config: dict[str, object], name: str, path: Path) -> dict[str, object]:
    """A section of a cluster.yaml; empty if it is missing."""
    found = config.get(name) or {}
    if not isinstance(found, dict):
        raise ConfigError(f"{name}: must be a mapping in {path}, but is {found!r}")
    return found


def check_cluster(path: Path) -> None:
    """Check the head, from the machine that will start it."""
    machines, door = read(path)
    if door.key is not None and not Path(door.key).expanduser().exists():
        raise ConfigError(f"auth.ssh_private_key must be a file, but there is no {door.key}")
    ask_all([machines.head], door, None)


def workers(path: Path) -> None:
    """Check the workers, from the head."""
    machines, door = read(path)
    ask_all(machines.workers, door, platform.python_version())


def add(path: Path, host: str) -> None:
    """Add a machine to a running cluster: copy and install what `ray up` gives to a worker, and start it."""
    machines, door = read(path)
    ask_all([host], door, platform.python_version())
    config = read_yaml(path)
    for each in (*config.get("file_mounts", {}), *config.get("cluster_synced_files", [])):
        door.bring(host, each)
    for words in (*config.get("worker_setup_commands", []), *config.get("worker_start_ray_commands", [])):
        print(f"{host}: {words}", file=sys.stderr)
        door.run(host, f"export RAY_HEAD_IP={machines.head}; {words}")


def main(words: list[str] | None = None) -> int:
    words = sys.argv[1:] if words is None else words

    def work() -> int:
        parser = Parser("fedmbo_ray.cluster", "Check the machines of a cluster.yaml, or add one.", HELP)
        parser.add_argument("what", choices=("check", "workers", "add"), help="check the head, the workers; add one")
        parser.add_argument("file", type=Path, metavar="CLUSTER.yaml")
        parser.add_argument("host", nargs="?", help="the address of the machine to add")
        args = parser.parse_args(words)
        if (args.what == "add") != (args.host is not None):
            raise ConfigError(f"{args.what} {'needs the' if args.what == 'add' else 'takes no'} address of a machine")
        {"check": check_cluster, "workers": workers, "add": lambda file: add(file, args.host)}[args.what](args.file)
        return 0

    return guarded(work, lambda: "")
