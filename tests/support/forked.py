"""Commands as real processes that need not import anything: one process has imported all of it, and forks.

A fresh `python -m fedmbo_ray.tune` spends four seconds of processor time on imports before it reads its first word.
`Forks().start("-m", "fedmbo_ray.tune", …)` is the same process otherwise: a number of its own, a session of its own,
its folder, its environment, signals, an exit code. This file is also the program of the process that forks; it has a
single thread, since a fork keeps only one.
"""

import gc
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from checkout import ROOT

LIBRARIES = "scipy.stats sklearn pandas torch.func ray.tune mlflow.pyfunc optuna matplotlib.pyplot"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
# What Ray writes into the environment of a test's process when it starts there. A fresh process would read it as it
# imports Ray; one that is forked has done so before, and would trust its own Ray with a token that it never loaded.
LEFT = {"RAY_AUTH_MODE", "RAY_CLIENT_MODE", "RAY_USAGE_STATS_ENABLED", "PYTHONBREAKPOINT"}
QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "GIT_PYTHON_REFRESH": "quiet", "MPLBACKEND": "Agg"}


class Forked:
    """A process that was forked, much like a `subprocess.Popen`; what it says is kept in files."""

    def __init__(self, connection: socket.socket, out: IO[bytes], err: IO[bytes]) -> None:
        self._connection, self._said = connection.makefile("r"), (out, err)
        self._socket = connection
        self.pid = int(self._connection.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, negative for a signal, or None while it runs."""
        return self._ended(0)

    def wait(self, timeout: float = 280) -> int:
        code = self._ended(timeout)
        if code is None:
            raise TimeoutError(f"process {self.pid} still runs after {timeout:g} s; it has said: {self.said()}")
        return code

    def _ended(self, seconds: float) -> int | None:
        if self.returncode is None:
            with selectors.DefaultSelector() as selector:
                selector.register(self._socket, selectors.EVENT_READ)
                if selector.select(seconds):
                    self.returncode = int(self._connection.readline())
        return self.returncode

    def said(self) -> tuple[str, str]:
        """On stdout and stderr, up to now."""
        texts = []
        for file in self._said:
            texts.append(os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode())
        return texts[0], texts[1]

    def finish(self, timeout: float = 280) -> tuple[int, str, str]:
        """Its exit code, and all it has said on stdout and stderr."""
        return self.wait(timeout), *self.said()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


class Forks:
    """The process that forks, seen from a test; it ends with the test's process."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="forks")
        self._path = str(Path(self._folder) / "socket")
        environment = {**os.environ, **ONE_THREAD, **QUIET}
        command = [sys.executable, __file__, self._path]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True
        )
        assert self._process.stdout is not None
        ready = self._process.stdout.readline()
        assert ready == b"ready\n", "the process that forks has not started"

    def start(self, *words: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Forked:
        """As `python *words` would: `-m module …` or `-c program …`."""
        environment = {key: value for key, value in (os.environ if env is None else env).items() if key not in LEFT}
        request = {"words": words, "cwd": str(cwd or Path.cwd()), "env": environment}
        out, err = tempfile.TemporaryFile(dir=self._folder), tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(self._path)
        socket.send_fds(connection, [b"?"], [out.fileno(), err.fileno()])
        connection.sendall(json.dumps(request).encode() + b"\n")
        return Forked(connection, out, err)

    def run(self, *words: str, timeout: float = 280, **where: Any) -> tuple[int, str, str]:
        """Its exit code, and what it says on stdout and stderr."""
        return self.start(*words, **where).finish(timeout)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)
        Path(self._path).unlink(missing_ok=True)
        Path(self._folder).rmdir()


class Server:
    """The process that forks: serves one connection per process, and tells it the number and later the exit code."""

    def __init__(self, path: str) -> None:
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(path)
        self.listener.listen(64)
        self.woken, wake = socket.socketpair()
        self.wake = wake
        wake.setblocking(False)
        self.woken.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake.fileno())
        self.children: dict[int, socket.socket] = {}

    def serve(self) -> dict[str, Any] | None:
        """Returns in every fork, with what it is to do; and at the end of all, with None."""
        selector = selectors.DefaultSelector()
        for source in (sys.stdin, self.listener, self.woken):
            selector.register(source, selectors.EVENT_READ)
        while True:
            ready = [key.fileobj for key, _ in selector.select()]
            if self.woken in ready:
                self.woken.recv(4096)
                self._bury()
            if self.listener in ready:
                request = self._fork()
                if request is not None:
                    selector.close()
                    return request
            if sys.stdin in ready:  # nothing is ever written to it: the test's process has closed it, or is gone
                return None

    def _fork(self) -> dict[str, Any] | None:
        """What to do, in the new process; None in this one."""
        connection, _ = self.listener.accept()
        _, files, _, _ = socket.recv_fds(connection, 1, 2)
        with connection.makefile("r") as lines:
            request = json.loads(lines.readline())
        pid = os.fork()
        if pid:
            for file in files:
                os.close(file)
            self.children[pid] = connection
            connection.sendall(f"{pid}\n".encode())
            return None
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for each in (self.listener, self.woken, self.wake, connection, *self.children.values()):
            each.close()
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), 0)
        for number, file in enumerate(files, start=1):
            os.dup2(file, number)
            os.close(file)
        return request

    def _bury(self) -> None:
        """Tell how the processes that have ended did so."""
        for pid, connection in list(self.children.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del self.children[pid]
                with connection, suppress(BrokenPipeError):  # nobody may be left who wants to know
                    connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def rooms() -> list[str]:
    """All modules of the package but those that `python -m` is to run."""
    folder = ROOT / "fedmbo_ray"
    files = [file.relative_to(ROOT).with_suffix("").parts for file in folder.glob("[a-z]*/**/*.py")]
    return sorted(".".join(parts).removesuffix(".__init__") for parts in files if "template" not in parts)


def become(request: dict[str, Any], paths: list[str]) -> None:
    """Run what `python *words` would have run in this folder and environment."""
    import numpy as np

    np.random.seed()  # noqa: NPY002 - as a fresh process would have one of its own
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    theirs = [path for path in request["env"].get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [request["cwd"], *theirs, *paths]
    kind, what, *words = request["words"]
    sys.argv = ["-m" if kind == "-m" else "-c", *words]
    if kind == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})


def main() -> None:
    started = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    paths = [path for path in sys.path[1:] if path not in started]
    begun = time.process_time()
    for name in (*LIBRARIES.split(), *rooms()):
        import_module(name)
    import torch

    torch.set_num_threads(1)
    threads = len(os.listdir("/proc/self/task"))
    assert threads == 1, f"{threads} threads, of which a fork would keep one"
    server = Server(sys.argv[1])
    print(f"imported in {time.process_time() - begun:.1f} s", file=sys.stderr)
    gc.freeze()
    print("ready", flush=True)
    request = server.serve()
    if request is not None:
        become(request, paths)


if __name__ == "__main__":
    main()
