"""The page of `assay compare` says what the terminal says, and needs nothing else."""

from __future__ import annotations

from html.parser import HTMLParser

from msgspec.structs import replace

from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.compared import kept, on
from assay.harness.tests.support.comparing import LAWS, compare

HOSTILE = "<script>alert('x')</script> [bold]& \x1b[31m\u202e"


class Page(HTMLParser):
    """What is in a page: tags, text, and attributes that could load something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags, self.loads, self.text, self.open = [], [], "", []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag not in ("meta", "link"):
            self.open.append(tag)
        self.loads += [v for k, v in attributes if k in ("src", "href") and v[:1] != "#"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_the_page_says_the_same_and_needs_nothing_else(before, after, tmp_path, capsys):
    path = tmp_path / "new folder" / "page.html"
    assert compare(before, after, "--html", path) == 1
    page = Page(path.read_text(encoding="utf-8"))
    assert page.open == []
    assert set(page.loads) == {"data:,"}
    assert "script" not in page.tags
    for words in ("1 regression, 1 lost, 1 drift in 6 claims", "it broke", "bfloat16", "law 2"):
        assert words in page.text
    assert "url(" not in path.read_text()


def test_names_are_shown_as_they_are_and_do_nothing(tmp_path, capsys):
    hostile = [replace(each, name=HOSTILE, subject=HOSTILE, reason=HOSTILE) for each in LAWS[:1]]
    broken = [replace(each, verdict=Verdict.REFUTED) for each in hostile]
    more = on(HOSTILE, LAWS[1:3])
    path = tmp_path / "page.html"
    files = (kept(tmp_path / "a", hostile + more), kept(tmp_path / "b", broken))
    assert compare(*files, "--html", path) == 1
    shown = capsys.readouterr().out
    assert "\x1b[31m" not in shown
    assert "\u202e" not in shown
    assert "[bold]&" in shown
    page = Page(path.read_text())
    assert "script" not in page.tags
    assert "alert" in page.text
