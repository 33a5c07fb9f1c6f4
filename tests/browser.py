"""A headless Chromium, driven through its DevTools protocol; needs no package but websockets, which viser has."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from websockets.sync.client import ClientConnection, connect

__all__ = ["Browser", "chromium", "open_browser"]

_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--remote-debugging-port=0",
]


def chromium() -> str | None:
    """Path of a Chromium or Chrome; None if there is none."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for name in names if (path := shutil.which(name))), None)


class Browser:
    """One tab.

    Attributes:
        errors: What went wrong on the page: errors on its console, exceptions, and requests to other machines.
    """

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._n_calls = 0
        self.errors: list[str] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol."""
        self._n_calls += 1
        self._connection.send(json.dumps({"id": self._n_calls, "method": method, "params": params}))
        while True:
            message = json.loads(self._connection.recv(timeout=120))
            self._note(message)
            if message.get("id") == self._n_calls:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result

    def open(self, url: str) -> None:
        """Go to a page."""
        self.call("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """Value of a JavaScript expression."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait_for(self, script: str, *, seconds: float = 90) -> Any:
        """Wait until a JavaScript expression is true."""
        deadline = time.monotonic() + seconds
        while not (value := self.run(script)):
            assert time.monotonic() < deadline, f"never true: {script}"
            time.sleep(0.1)
        return value

    def screenshot(self, path: Path | None = None) -> NDArray[np.uint8]:
        """`(height, width, 3)` pixels of the page, which also go to a file."""
        data = base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        if path is not None:
            path.write_bytes(data)
        with Image.open(io.BytesIO(data)) as picture:
            return np.asarray(picture.convert("RGB"))

    def click(self, x: float, y: float) -> None:
        """Click with the mouse."""
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str, code: int) -> None:
        """Press a key that types nothing, such as ArrowRight (39)."""
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def type(self, text: str) -> None:
        """Type into what has the focus."""
        self.call("Input.insertText", text=text)

    def _note(self, message: dict[str, Any]) -> None:
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(str(params["exceptionDetails"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(str(params["entry"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
            self.errors.append(str(params["args"]))
        elif method == "Network.requestWillBeSent":
            url = params["request"]["url"]
            if not url.startswith(("http://127.0.0.1:", "data:", "blob:")):
                self.errors.append(f"request to {url}")


@contextlib.contextmanager
def open_browser(executable: str, width: int = 1280, height: int = 800) -> Iterator[Browser]:
    """Start a browser, with a profile of its own that is thrown away."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [
            executable,
            *_FLAGS,
            f"--user-data-dir={profile}",
            f"--window-size={width},{height}",
            "about:blank",
        ]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                with connect(_page_address(Path(profile)), max_size=None, proxy=None) as connection:
                    browser = Browser(connection)
                    browser.call(
                        "Emulation.setDeviceMetricsOverride",
                        width=width,
                        height=height,
                        deviceScaleFactor=1,
                        mobile=False,
                    )
                    yield browser
            finally:
                process.terminate()


def _page_address(profile: Path) -> str:
    """Address of the first tab's protocol, once the browser has said where it listens."""
    file = profile / "DevToolsActivePort"
    _wait(lambda: file.exists() and len(file.read_text().splitlines()) == 2)
    port, path = file.read_text().split()
    with connect(f"ws://127.0.0.1:{port}{path}", max_size=None, proxy=None) as connection:
        connection.send(json.dumps({"id": 1, "method": "Target.getTargets"}))
        while (answer := json.loads(connection.recv(timeout=30))).get("id") != 1:
            pass
    (tab,) = (t for t in answer["result"]["targetInfos"] if t["type"] == "page")
    return f"ws://127.0.0.1:{port}/devtools/page/{tab['targetId']}"


def _wait(ready: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, "the browser did not start"
        time.sleep(0.05)
