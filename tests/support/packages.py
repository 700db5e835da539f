"""Packages made on the spot, and an index that serves one."""

import hashlib
import shutil
import subprocess
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

WHEEL = "small_data-1.0-py3-none-any.whl"


def make_wheel(folder: Path, files: dict[str, bytes]) -> Path:
    """The wheel small_data==1.0 with these files, not compressed."""
    info = "small_data-1.0.dist-info"
    meta = {
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: small-data\nVersion: 1.0\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": b"",
    }
    with zipfile.ZipFile(folder / WHEEL, "w") as archive:
        for name, content in {**files, **meta}.items():
            archive.writestr(name, content)
    return folder / WHEEL


def make_deb(folder: Path, files: dict[str, bytes]) -> Path:
    """The Debian package small-data with these files."""
    tree = folder / "tree"
    for name, content in {**files, "DEBIAN/control": CONTROL}.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(content)
    (tree / "DEBIAN").chmod(0o755)
    subprocess.run(["dpkg-deb", "--build", str(tree), str(folder / "small-data.deb")], check=True, capture_output=True)
    shutil.rmtree(tree)
    return folder / "small-data.deb"


CONTROL = b"""Package: small-data
Version: 1.0
Architecture: all
Maintainer: Nobody <nobody@example.org>
Description: made by a test
"""


class Index(ThreadingHTTPServer):
    """A package index with one wheel, of which it sends half and waits until `go_on` is set."""

    def __init__(self, wheel: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.content = wheel.read_bytes()
        self.half_sent, self.go_on = threading.Event(), threading.Event()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/simple"


class _Answer(BaseHTTPRequestHandler):
    server: Index

    def do_GET(self) -> None:
        content = self.server.content
        link = f'<a href="/{WHEEL}#sha256={hashlib.sha256(content).hexdigest()}">{WHEEL}</a>'.encode()
        body = content if self.path.endswith(".whl") else link
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream" if body is content else "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2])
        self.wfile.flush()
        if body is content:
            self.server.half_sent.set()
            self.server.go_on.wait(60)
        self.wfile.write(body[len(body) // 2 :])

    def log_message(self, *arguments: object) -> None:
        pass


@contextmanager
def serving(wheel: Path) -> Iterator[Index]:
    with Index(wheel) as index:
        thread = threading.Thread(target=index.serve_forever, daemon=True)
        thread.start()
        try:
            yield index
        finally:
            index.go_on.set()
            index.shutdown()
            thread.join()
