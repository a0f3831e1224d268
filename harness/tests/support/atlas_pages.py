"""The atlas as a browser shows it, and what is done with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from assay.harness.tests.support.browsers import (
    Browser,
)

WAITING = "new Promise((done) => setTimeout(done, {}))"


class Page:
    """The atlas as it is shown, and what is done with it."""

    def __init__(self, browser: Browser, atlas: Path) -> None:
        self.browser, self.path = browser, atlas / "index.html"

    def open(self, hash: str = "", width: int = 1280, height: int = 900, scheme: str = "light"):
        """Show it afresh, and wait for its map."""
        self.browser.open(Path("/nowhere/blank.html"), width, height, scheme)
        address = self.path.as_uri() + hash

        class Target:
            as_uri = staticmethod(lambda: address)

        self.browser.open(Target, width, height, scheme)  # type: ignore[arg-type]
        ready = "document.documentElement.dataset.ready"
        for _ in range(200):
            if self(ready):
                break
            self(WAITING.format(20))
        assert self(ready) == "yes", self("document.querySelector('#trouble').textContent")
        return self

    def __call__(self, script: str) -> Any:
        return self.browser.value(script)

    def text(self, selector: str) -> str:
        return str(self(f"document.querySelector({selector!r}).textContent"))

    def all(self, selector: str) -> list[str]:
        return list(
            self(f"[...document.querySelectorAll({selector!r})].map((e) => e.textContent)")
        )

    def click(self, selector: str) -> None:
        self(f"document.querySelector({selector!r}).click()")

    def choose(self, selector: str, value: str) -> None:
        """Type or pick a value, and wait until the page has taken it."""
        self(
            f"(() => {{ const e = document.querySelector({selector!r}); e.value = {value!r};"
            " for (const kind of ['input', 'change']) e.dispatchEvent(new Event(kind)) })()"
        )
        self(WAITING.format(250))

    @property
    def rows(self) -> list[str]:
        return self.all("#grid tbody th")

    @property
    def columns(self) -> list[str]:
        return self.all("#grid thead th[scope=col] button")

    @property
    def shown(self) -> tuple[str, str, str]:
        """Model, law and verdict that the panel tells of."""
        on = self("document.querySelector('#panel .on').firstChild.textContent")
        return on, self.text("#panel h3"), self.text("#panel .verdict")
