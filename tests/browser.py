"""A real headless Chromium, driven over its debugging pipe: no other software is needed.

Commands and events are JSON objects that end with a zero byte; the browser reads them from its file
descriptor 3 and writes to 4 (--remote-debugging-pipe).
"""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
ABSENT = f"no headless browser: none of {', '.join(NAMES)} is installed"
TIMEOUT = 60.0

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)

# The browser wants its pipe at 3 and 4, which may be taken while they are moved there.
_LAUNCH = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
os.dup2(ends[0], 3), os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find_browser() -> str | None:
    """Path of a Chromium, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@dataclass
class Visit:
    """What a page did when it was opened.

    Attributes:
        requests: URLs that it asked for, its own first.
        messages: errors and warnings of the console and of the page's log.
        width: of the content in CSS pixels; more than the window's makes the page scroll sideways.
        text: what a reader sees.
    """

    requests: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    width: int = 0
    text: str = ""


class Browser:
    """One browser process."""

    def __init__(self, process: subprocess.Popen[bytes], to: int, back: int) -> None:
        self._process, self._to, self._back = process, to, back
        self._pending = b""
        self._count = 0
        self._events: list[dict[str, Any]] = []

    def visit(self, page: Path, width: int, screenshot: Path | None = None) -> Visit:
        """Opens a file in a window of that width and says what happened."""
        target = self._ask("Target.createTarget", {"url": "about:blank"})["targetId"]
        attach = {"targetId": target, "flatten": True}
        session = self._ask("Target.attachToTarget", attach)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self._ask(f"{domain}.enable", {}, session)
        screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self._ask("Emulation.setDeviceMetricsOverride", screen, session)
        self._events.clear()
        answer = self._ask("Page.navigate", {"url": page.resolve().as_uri()}, session)
        assert "errorText" not in answer, answer
        self._wait_for("Page.loadEventFired")
        found = Visit(text=self._evaluate("document.body.innerText", session))
        found.width = self._evaluate("document.documentElement.scrollWidth", session)
        self._read(self._events)
        if screenshot is not None:
            options = {"format": "png", "captureBeyondViewport": True}
            image = self._ask("Page.captureScreenshot", options, session)["data"]
            screenshot.write_bytes(base64.b64decode(image))
        for event in self._events:
            self._note(event, found)
        self._ask("Target.closeTarget", {"targetId": target})
        return found

    @staticmethod
    def _note(event: dict[str, Any], found: Visit) -> None:
        parameters = event.get("params", {})
        if event["method"] == "Network.requestWillBeSent":
            found.requests.append(parameters["request"]["url"])
        elif event["method"] == "Runtime.consoleAPICalled":
            found.messages.append(json.dumps(parameters["args"]))
        elif event["method"] == "Runtime.exceptionThrown":
            found.messages.append(json.dumps(parameters["exceptionDetails"]))
        elif event["method"] == "Log.entryAdded":
            found.messages.append(parameters["entry"]["text"])

    def _evaluate(self, expression: str, session: str) -> Any:
        options = {"expression": expression, "returnByValue": True}
        return self._ask("Runtime.evaluate", options, session)["result"]["value"]

    def _ask(self, method: str, parameters: dict[str, Any], session: str = "") -> dict[str, Any]:
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + TIMEOUT
        while True:
            event = self._next(deadline)
            if event.get("id") == self._count:
                assert "error" not in event, event
                return dict(event["result"])
            self._events.append(event)

    def _wait_for(self, method: str) -> None:
        deadline = time.monotonic() + TIMEOUT
        while not any(event.get("method") == method for event in self._events):
            self._events.append(self._next(deadline))

    def _read(self, into: list[dict[str, Any]]) -> None:
        """Takes in what comes within half a second after the page is there."""
        with suppress(TimeoutError):
            while True:
                into.append(self._next(time.monotonic() + 0.5))

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._pending:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._back], [], [], left)[0]:
                raise TimeoutError("the browser did not answer")
            chunk = os.read(self._back, 1 << 20)
            assert chunk, "the browser ended"
            self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\0")
        return dict(json.loads(line))


@contextmanager
def open_browser(executable: str, profile: Path) -> Iterator[Browser]:
    """A browser with an empty profile, ended with the block."""
    theirs_in, to = os.pipe()
    back, theirs_out = os.pipe()
    arguments = [str(theirs_in), str(theirs_out), executable, f"--user-data-dir={profile}"]
    process = subprocess.Popen(
        [sys.executable, "-c", _LAUNCH, *arguments, *_FLAGS],
        pass_fds=(theirs_in, theirs_out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Browser(process, to, back)
    finally:
        os.close(to)
        os.close(back)
        process.terminate()
        process.wait(timeout=TIMEOUT)
