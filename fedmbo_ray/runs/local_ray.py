"""A Ray that is started here: reached from this machine alone, by whoever has its token, its files for one user."""

import os
import secrets
import stat
import tempfile
from pathlib import Path

from fedmbo_ray.core.compat import ray_reads_authentication
from fedmbo_ray.core.errors import RunFailed
from fedmbo_ray.core.io import own_folder

LOOPBACK = "127.0.0.1"
SOCKET = "session_2000-01-01_00-00-00_000000_{}/sockets/plasma_store"  # the longest that Ray makes below its folder
LONGEST = 103  # bytes of a socket's path


def local_options() -> dict[str, object]:
    """What `ray.init` is told about a cluster of this process, whose environment is prepared for it."""
    os.environ.setdefault("RAY_enable_metrics_collection", "0")  # they are served without a token
    require_token()
    return {"_node_ip_address": LOOPBACK, "_temp_dir": str(sessions()), "include_dashboard": False}


def require_token() -> None:
    """Have Ray ask for a token: the user's, if there is one, or a new one, known to this process and its children.

    A user who has switched tokens off ($RAY_AUTH_MODE) has chosen so.
    """
    if os.environ.setdefault("RAY_AUTH_MODE", "token").lower() == "token":
        if not {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys():
            os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
        ray_reads_authentication()


def sessions() -> Path:
    """The folder of Ray's sessions, which Ray opens to everybody: below one that only this user can open.

    Raises:
        RunFailed: somebody else has a folder of that name.
    """
    chosen = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
    name, socket = f"fedmbo-{os.getuid()}", SOCKET.format(os.getpid())
    fits = len(os.fsencode(f"{chosen}/{name}/ray/{socket}")) <= LONGEST
    folder = Path(chosen if fits else "/tmp") / name
    own_folder(folder)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise RunFailed(f"{folder} must be a folder of yours, but is not: set $RAY_TMPDIR to another place")
    folder.chmod(0o700)
    return folder / "ray"
