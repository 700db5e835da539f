"""What another user of this machine sees: a program in a process that belongs to `nobody`."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

AS_NOBODY = 'mount --bind "$1" "$2" && shift 2 && exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@"'


class SecondUser:
    """Runs programs as `nobody`, who reaches Python at a place of his own, since ours may be below a closed home."""

    def __init__(self, place: Path) -> None:
        if os.getuid() != 0 or not shutil.which("unshare") or not shutil.which("setpriv"):
            pytest.skip("only root can start a process of another user (with unshare and setpriv)")
        self.prefix = place / "python"
        self.prefix.mkdir(mode=0o755)
        probe = self._process("-c", "import ray")
        if probe.returncode != 0:
            pytest.skip(f"nobody can't run this Python: {probe.stderr[-200:]}")

    def _process(self, *words: str, **env: str) -> "subprocess.CompletedProcess[str]":
        python = self.prefix / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
        command = ["unshare", "--mount", "bash", "-c", AS_NOBODY, "as nobody", sys.base_prefix, str(self.prefix)]
        env = {"PATH": os.environ["PATH"], "HOME": "/", "PYTHONPATH": sysconfig.get_path("purelib"), **env}
        return subprocess.run([*command, str(python), *words], env=env, cwd="/", capture_output=True, text=True)

    def run(self, program: str, *words: str, **env: str) -> Any:
        """What a program prints as JSON."""
        ended = self._process("-c", program, *words, **env)
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout)
