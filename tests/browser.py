"""A headless Chromium, driven over its DevTools protocol."""

import asyncio
import base64
import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import aiohttp

NAMES = ("chromium", "chromium-browser", "google-chrome")
QUIET = ["quic", "background-networking", "component-update", "sync", "gpu"]
FLAGS = ["--headless", "--no-sandbox", "--no-first-run", *(f"--disable-{word}" for word in QUIET)]
FLAGS += ["--remote-debugging-port=0", "--window-size=1600,1100"]


def find() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page; `errors` are what its console has complained about."""

    def __init__(self) -> None:
        self.profile = tempfile.mkdtemp()
        words = [str(find()), *FLAGS, f"--user-data-dir={self.profile}", "about:blank"]
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.loop = asyncio.new_event_loop()
        self.errors: list[str] = []
        self.number = 0
        self.loop.run_until_complete(self._connect())

    async def _connect(self) -> None:
        port_file, deadline = Path(self.profile) / "DevToolsActivePort", time.monotonic() + 60
        while not port_file.exists() or not port_file.read_text().strip():
            if time.monotonic() > deadline:
                raise TimeoutError("Chromium did not start")
            await asyncio.sleep(0.1)
        port = port_file.read_text().split()[0]
        self.session = aiohttp.ClientSession()
        async with self.session.get(f"http://127.0.0.1:{port}/json") as answer:
            page = next(each for each in await answer.json() if each["type"] == "page")
        self.socket = await self.session.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=2**27)
        for domain in ("Page", "Runtime", "Log"):
            await self._call(f"{domain}.enable")

    async def _call(self, method: str, **parameters: Any) -> Any:
        self.number += 1
        await self.socket.send_json({"id": self.number, "method": method, "params": parameters})
        while True:
            message = json.loads((await self.socket.receive(timeout=60)).data)
            if message.get("method") == "Runtime.exceptionThrown":
                self.errors.append(str(message["params"]["exceptionDetails"])[:300])
            elif message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
                self.errors.append(message["params"]["entry"]["text"])
            if message.get("id") == self.number:
                if "error" in message:
                    raise RuntimeError(message["error"])
                return message["result"]

    def call(self, method: str, **parameters: Any) -> Any:
        return self.loop.run_until_complete(self._call(method, **parameters))

    def open(self, address: str) -> None:
        self.call("Page.navigate", url=address)

    def evaluate(self, expression: str) -> Any:
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def wait_for(self, expression: str, seconds: float = 60) -> Any:
        """The expression's value as soon as it is true."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            value = self.evaluate(expression)
            if value:
                return value
            time.sleep(0.3)
        raise TimeoutError(f"{expression} did not come true; the page says: {self.text()[:1000]}")

    def text(self) -> str:
        return self.evaluate("document.body ? document.body.innerText : ''") or ""

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.loop.run_until_complete(self.session.close())
        self.loop.close()
        self.process.terminate()
        self.process.wait(20)
        shutil.rmtree(self.profile, ignore_errors=True)
