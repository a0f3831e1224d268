"""What a terminal and a page show of results, and a reader of pages."""

from __future__ import annotations

import io
from html.parser import HTMLParser
from typing import Any

from rich.console import Console

from assay.harness.report.html import render
from assay.harness.report.terminal import print_table
from assay.harness.results.verdicts import Result
from assay.harness.tests.support.sample_runs import sample_run


def printed(*results: Result, width: int = 80, tty: bool = False, **options: Any) -> str:
    """What the terminal gets, by default as it is in a pipe."""
    colours = "standard" if tty else None
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=tty, color_system=colours)
    print_table(console, sample_run(), list(results), **options)
    return file.getvalue()


def page(*results: Result, **options: Any) -> str:
    """The page about these results."""
    return render(sample_run(), list(results), **options)


class Reader(HTMLParser):
    """Notes the elements of a page, and complains if they are not nested."""

    VOID = frozenset({"meta", "link", "input", "br"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element that has no content."""
        self.elements.append((tag, dict(attrs)))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element and that it is open."""
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Close the element opened last."""
        assert self.open.pop() == tag

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of all elements of a kind."""
        return [attributes for name, attributes in self.elements if name == tag]

    def values(self, attribute: str) -> list[str]:
        """The values of an attribute, wherever it is."""
        return [a[attribute] or "" for _, a in self.elements if attribute in a]

    def is_harmless(self) -> None:
        """Assert that the page has its own script only, and nothing that was made of a text."""
        assert len(self.all("script")) == 1
        assert not self.all("img")
        assert not any(name.startswith("on") for _, a in self.elements for name in a)


HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>'\"{{ 7*7 }}"


def html_of(text: str) -> str:
    """The text as it stands in a page."""
    return text.replace("&", "&amp;").replace("'", "&#39;")
