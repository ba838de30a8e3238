"""A headless Chromium, driven over its DevTools pipe: what a page looks like and what it complains about."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ANSWER_SECONDS = 30.0


def find() -> str | None:
    return next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )


class Tab:
    """One open page. ``complaints`` and ``requests`` are what it logged and what it asked the network for."""

    def __init__(self, process: subprocess.Popen[bytes], write: int, read: int) -> None:
        self._process, self._write, self._read = process, write, read
        self._count, self._buffer, self._session = 0, b"", ""
        self.complaints: list[str] = []
        self.requests: list[str] = []

    def open(self, page: Path) -> None:
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Log", "Runtime", "Network"):
            self.ask(f"{domain}.enable")
        self.ask("Page.navigate", url=page.as_uri())
        self._wait(lambda message: message.get("method") == "Page.loadEventFired")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command and its answer."""
        self._count += 1
        number = self._count
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        answer = self._wait(lambda said: said.get("id") == number)
        assert "error" not in answer, (method, answer)
        result: dict[str, Any] = answer["result"]
        return result

    def value(self, expression: str) -> Any:
        return self.ask("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def look(self, *, width: int, scheme: str) -> None:
        """Show the page at a width, in pixels, and in a colour scheme."""
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=True)

    def picture(self, path: Path) -> None:
        """All of the page as a PNG."""
        taken = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(taken["data"]))

    def _wait(self, wanted: Any) -> dict[str, Any]:
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            while b"\0" in self._buffer:
                text, _, self._buffer = self._buffer.partition(b"\0")
                message: dict[str, Any] = json.loads(text)
                self._note(message)
                if wanted(message):
                    return message
            left = deadline - time.monotonic()
            assert left > 0, f"Chromium said nothing for {ANSWER_SECONDS:g} s"
            if select.select([self._read], [], [], left)[0]:
                chunk = os.read(self._read, 1 << 16)
                assert chunk, f"Chromium ended with status {self._process.wait(5)}"
                self._buffer += chunk

    def _note(self, message: dict[str, Any]) -> None:
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Log.entryAdded":
            self.complaints.append(parameters["entry"]["text"])
        elif method in {"Runtime.consoleAPICalled", "Runtime.exceptionThrown"}:
            self.complaints.append(json.dumps(parameters))
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])


@contextlib.contextmanager
def tab(chromium: str, page: Path, profile: Path) -> Iterator[Tab]:
    """A page opened in a Chromium of its own, which is gone afterwards."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    # Chromium reads commands from descriptor 3 and answers on 4.
    command = 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"'
    process = subprocess.Popen(
        [
            *("bash", "-c", command, "bash", str(theirs_in), str(theirs_out)),
            *(chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"),
            *(f"--user-data-dir={profile}", "--no-first-run", "--disable-background-networking"),
        ],
        pass_fds=(theirs_in, theirs_out),
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        opened = Tab(process, ours_out, ours_in)
        opened.open(page)
        yield opened
    finally:
        process.terminate()
        process.wait(ANSWER_SECONDS)
        os.close(ours_out)
        os.close(ours_in)
