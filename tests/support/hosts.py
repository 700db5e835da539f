"""Several hosts on one machine: namespaces of the kernel, each with its own address, processes, home and SSH server.

The network between them is in a namespace too, the one a person sits in who starts a cluster; nothing of it is visible
outside, and nothing is left when the hosts are gone.
"""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any

from checkout import ROOT

NETWORK = "10.211.55"
PROGRAMS = ("ip", "sshd", "ssh", "ssh-keygen", "rsync", "unshare", "nsenter", "mount")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def missing() -> str | None:
    """Why there can be no hosts on this machine."""
    if os.name != "posix" or os.geteuid() != 0:
        return "namespaces need root"
    absent = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    if absent:
        return f"programs are missing: {', '.join(absent)} (Debian: apt-get install iproute2 openssh-server rsync)"
    tried = subprocess.run(["unshare", "--net", "--mount", "--pid", "--fork", "true"], capture_output=True, text=True)
    return f"no namespaces: {tried.stderr.strip()}" if tried.returncode else None


class Host:
    """A machine, for all that its processes can see."""

    def __init__(self, name: str, number: int, folder: Path, hosts: "Hosts", home_size: str) -> None:
        self.name, self.address, self.folder, self.hosts = name, f"{NETWORK}.{number}", folder, hosts
        self.home, self.size = Path("/home/node"), home_size
        self.process: subprocess.Popen | None = None

    def start(self) -> None:
        """Like the power button."""
        self.folder.mkdir(parents=True, exist_ok=True)
        script = self.folder / "init.sh"
        script.write_text(self._script())
        words = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--uts", "--kill-child"]
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen([*words, "bash", str(script)], stdout=log, stderr=log, env=clean())
        self._wait("namespaces", lambda: (self.folder / "ready").exists())
        (self.folder / "ready").unlink()
        self.hosts.connect(self)
        self._wait("SSH server", self.listens)

    def _script(self) -> str:
        """What runs as the machine's first process."""
        needed = [ROOT, self.hosts.folder, Path(sys.prefix), Path(sys.base_prefix)]
        under_tmp = [path for path in needed if path.is_relative_to("/tmp")]
        private = self.folder / "tmp"
        lines = [
            "set -e",
            f"hostname {self.name}",
            "mount --make-rprivate /",
            f"mkdir -p {private}",
            *(f"mkdir -p {private}/{path.relative_to('/tmp')}" for path in under_tmp),
            *(f"mount --bind {path} {private}/{path.relative_to('/tmp')}" for path in under_tmp),
            f"mount --rbind {private} /tmp",
            "mount -t tmpfs tmpfs /run && mkdir /run/sshd",
            "mount -t tmpfs tmpfs /dev/shm && chmod 1777 /dev/shm",
            f"mount -t tmpfs -o size={self.size} tmpfs /home && mkdir -p {self.home}/.ssh",
            f"sed 's#^root:.*#root:x:0:0:root:{self.home}:/bin/bash#' /etc/passwd > {self.folder}/passwd",
            f"mount --bind {self.folder}/passwd /etc/passwd",
            f"cp {self.hosts.key}.pub {self.home}/.ssh/authorized_keys && chmod -R go-rwx {self.home}",
            f"bash {self.folder}/prepare.sh",
            "ip link set lo up",
            f"touch {self.folder}/ready",
            f"while ! ip addr show eth0 2>/dev/null | grep -q {self.address}; do sleep 0.05; done",
            f"$(command -v sshd) -D -e -f {self.hosts.sshd_config} & wait",
        ]
        (self.folder / "prepare.sh").write_text(self.prepare())
        return "\n".join(lines)

    def prepare(self) -> str:
        """What a machine of a cluster has before anybody asks: Python, and the packages without a network."""
        tree = self.home / "fedmbo"
        ours = "\n".join(dict.fromkeys(sysconfig.get_path(kind) for kind in ("purelib", "platlib")))
        packages = f"{tree}/.venv/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
        return "\n".join(
            [
                "set -e",
                f"mkdir -p {self.home}/bin {self.home}/.config/pip {tree}",
                f"ln -s {sys.executable} {self.home}/bin/python3",
                f"echo 'export PATH=$HOME/bin:$HOME/.local/bin:{PATH}' > {self.home}/.profile",
                f"touch {self.home}/.bashrc",
                f"printf '[install]\\nno-index = true\\nno-build-isolation = false\\n' "  # false means that it is off
                f"> {self.home}/.config/pip/pip.conf",
                f"{sys.executable} -m venv --without-pip {tree}/.venv",
                f"echo {shlex.quote(ours)} > {packages}/ours.pth",
                f"printf '#!{tree}/.venv/bin/python\\nfrom ray.scripts.scripts import main\\nmain()\\n' "
                f"> {tree}/.venv/bin/ray",
                f"chmod +x {tree}/.venv/bin/ray",
            ]
        )

    def listens(self) -> bool:
        return self.run("bash", "-c", f"< /dev/tcp/{self.address}/22").returncode == 0

    def kill(self) -> None:
        """Pull the plug."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    @property
    def first_process(self) -> int:
        """The number, outside, of the machine's process 1."""
        assert self.process is not None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[0])

    def run(self, *words: str, **options: Any) -> subprocess.CompletedProcess:
        """A command on this machine, as its user."""
        enter = ["nsenter", "-t", str(self.first_process), "--all", "bash", "-c", 'cd && exec "$@"', "-"]
        environment = {**clean(), "HOME": str(self.home), "PATH": f"{self.home}/bin:{PATH}"}
        defaults: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 300, "env": environment}
        return subprocess.run([*enter, *words], **{**defaults, **options})

    def processes(self) -> str:
        """Those that are there, but for the machine's own."""
        return self.run("ps", "-eo", "pid,args").stdout

    def _wait(self, what: str, there: Any) -> None:
        deadline = time.monotonic() + 60
        while not there():
            assert self.process is not None
            log = self.folder / "log"
            assert self.process.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < deadline, f"{self.name} has no {what}: {log.read_text()[-2000:]}"
            time.sleep(0.05)


class Seat(Host):
    """Where the person sits: the network is here, no SSH server, and the tree itself."""

    def _script(self) -> str:
        lines = super()._script().splitlines()[:-2]
        lines += ["ip link add lan type bridge", "ip link set lan up", f"ip addr add {self.address}/24 dev lan"]
        return "\n".join([*lines, "sleep infinity"])

    def listens(self) -> bool:
        return True

    def prepare(self) -> str:
        return f"cp {self.hosts.key} {self.home}/.ssh/id_test && chmod 600 {self.home}/.ssh/id_test"


class Hosts:
    """A network with a seat for a person, and machines that can be added and killed."""

    def __init__(self, folder: Path, count: int, home_size: str = "6g") -> None:
        self.folder, self.key = folder, folder / "key"
        folder.mkdir(parents=True, exist_ok=True)
        for name in (self.key, folder / "host_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(name)], check=True)
        self.sshd_config = folder / "sshd_config"
        lines = [f"HostKey {folder}/host_key", "PermitRootLogin prohibit-password", "UsePAM no", "StrictModes no"]
        self.sshd_config.write_text("\n".join([*lines, "MaxStartups 100", ""]))
        self.seat = Seat("seat", 1, folder / "seat", self, "1g")
        self.machines = [
            Host(f"host{number}", number + 1, folder / f"host{number}", self, home_size)
            for number in range(1, count + 1)
        ]

    def __enter__(self) -> "Hosts":
        try:
            for each in (self.seat, *self.machines):
                each.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for each in (*self.machines, self.seat):
            each.kill()

    def connect(self, host: Host) -> None:
        """Plug a machine's cable into the network."""
        if host is self.seat:
            return
        inside, outside = str(host.first_process), f"to-{host.name}"
        self._net("ip", "link", "del", outside, check=False)
        self._net("ip", "link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", inside)
        self._net("ip", "link", "set", outside, "master", "lan", "up")
        for words in ("link set eth0 up", f"addr add {host.address}/24 dev eth0"):
            subprocess.run(["nsenter", "-t", inside, "--net", "ip", *words.split()], check=True, env=clean())

    def cable(self, host: Host, state: str) -> None:
        """Pull a machine's cable (`down`), or plug it in again (`up`)."""
        self._net("ip", "link", "set", f"to-{host.name}", state)

    def _net(self, *words: str, check: bool = True) -> None:
        """In the network's own namespace, but seeing the numbers of processes outside."""
        enter = ["nsenter", "-t", str(self.seat.first_process), "--net", *words]
        subprocess.run(enter, check=check, env=clean(), capture_output=not check)


def clean() -> dict[str, str]:
    """The environment of a new machine."""
    return {"PATH": PATH, "LANG": "C.UTF-8", "TERM": "dumb"}
