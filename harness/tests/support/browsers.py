"""A real browser for tests of pages, and what can be asked of a page in it."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--remote-debugging-pipe",)  # fmt: skip
WIRE = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD_CLOEXEC, 10) for end in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""Becomes Chromium, which reads commands from descriptor 3 and answers on 4."""

KEYS = {
    "Tab": 9, "Enter": 13, "Escape": 27, "PageUp": 33, "PageDown": 34, "End": 35, "Home": 36,
    "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40,
}  # fmt: skip
"""Codes of the keys that a test may press."""

PATIENCE = 60.0
"""Seconds that a slow machine may take for one answer."""


class Browser:
    """Chromium at the other end of two pipes, spoken to in its DevTools protocol."""

    def __init__(self, program: str, folder: Path) -> None:
        to_read, self._out = os.pipe()
        self._in, to_write = os.pipe()
        os.set_blocking(self._in, False)
        wire = [sys.executable, "-c", WIRE, str(to_read), str(to_write)]
        self._process = subprocess.Popen(
            [*wire, program, *FLAGS, f"--user-data-dir={folder}", "about:blank"],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._number = 0
        self._session: str | None = None
        self._buffer = b""
        self.events: list[dict[str, Any]] = []
        try:
            target = self.ask("Target.createTarget", url="about:blank")["targetId"]
            attached = self.ask("Target.attachToTarget", targetId=target, flatten=True)
            self._session = attached["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.ask(f"{domain}.enable")
        except BaseException:
            self.close()
            raise

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """One command and its answer; events that come meanwhile go to ``events``."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and self._process.poll() is None:
            messages = self._messages()
            self.events += [each for each in messages if "id" not in each]
            for answer in messages:
                if answer.get("id") == self._number:
                    assert "error" not in answer, (method, answer["error"])
                    return dict(answer["result"])
        raise TimeoutError(f"no answer to {method}")

    def _messages(self) -> list[dict[str, Any]]:
        try:
            self._buffer += os.read(self._in, 1 << 20)
        except BlockingIOError:
            time.sleep(0.01)
        *whole, self._buffer = self._buffer.split(b"\0")
        return [json.loads(part) for part in whole]

    def open(self, page: Path, width: int, height: int, scheme: str) -> None:
        """Show ``page`` afresh in a window of that size, in the scheme 'light' or 'dark'."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.ask("Emulation.setEmulatedMedia", media="", features=[feature])
        self.events.clear()
        self.ask("Page.navigate", url=page.as_uri())
        until = time.monotonic() + PATIENCE
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            assert time.monotonic() < until, "the page does not finish loading"
            self.value("0")

    def value(self, script: str) -> Any:
        """What the expression comes to in the page."""
        answer = self.ask(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """Press and let go of one key."""
        for kind in ("rawKeyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                     windowsVirtualKeyCode=KEYS[key])  # fmt: skip
        if key == "Enter":
            self.ask("Input.dispatchKeyEvent", type="char", text="\r", key=key)

    def screenshot(self, path: Path, whole: bool = False) -> None:
        """Save what is shown, or the whole length of the page, as PNG."""
        answer = self.ask("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    def close(self) -> None:
        """End the browser that this object began."""
        os.close(self._out)
        os.close(self._in)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


MODES = [(w, h, scheme) for w, h in ((360, 740), (1280, 900)) for scheme in ("light", "dark")]

TEXT_CONTRAST = """(() => {
  const rgb = (colour) => {
    const [r, g, b, a = 1] = colour.match(/[\\d.]+/g).map(Number);
    return { part: [r, g, b], a };
  };
  const linear = (v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = (part) => {
    const [r, g, b] = part.map((v) => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (; element; element = element.parentElement) {
      const { part, a } = rgb(getComputedStyle(element).backgroundColor);
      if (a === 1) return part;
    }
    return matchMedia("(prefers-color-scheme: dark)").matches ? [0, 0, 0] : [255, 255, 255];
  };
  let least = [99, ""];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.getClientRects().length) continue;
    const style = getComputedStyle(element);
    const ink = rgb(element.closest("svg") ? style.fill : style.color).part;
    const [a, b] = [light(ink), light(ground(element))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < least[0]) least = [ratio, element.outerHTML.slice(0, 120)];
  }
  return least;
})()"""
"""The least contrast between a text and what is behind it, and where that is."""


def program() -> str | None:
    """Chromium's path, or that of a browser made of it; None where there is none."""
    programs = map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
    return next(filter(None, programs), None)


def overflow(browser: Browser) -> int:
    """By how many pixels the page is wider than the window."""
    return int(browser.value("document.documentElement.scrollWidth - innerWidth"))


def complaints(browser: Browser) -> list[str]:
    """What the browser said about errors since the page was opened."""
    methods = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
    return [json.dumps(event) for event in browser.events if event["method"] in methods]


def requests(browser: Browser) -> list[str]:
    """The addresses asked for since the page was opened."""
    sent = [e["params"] for e in browser.events if e["method"] == "Network.requestWillBeSent"]
    return [params["request"]["url"] for params in sent]
