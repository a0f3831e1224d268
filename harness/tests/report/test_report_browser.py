"""The page in a real browser: nothing sticks out, nothing fails, nothing is fetched."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib import image
from msgspec.structs import replace

from assay.harness.report.html import render
from assay.harness.results.outputs import replace_file
from assay.harness.results.verdicts import Counterexample
from assay.harness.tests.support.browsers import (
    MODES,
    TEXT_CONTRAST,
    Browser,
    complaints,
    overflow,
    requests,
)
from assay.harness.tests.support.sample_findings import finding, findings
from assay.harness.tests.support.sample_plots import every_kind
from assay.harness.tests.support.sample_runs import LARGE, sample, sample_run

pytestmark = pytest.mark.nightly

BROKEN_PAGE = """<!doctype html><style>body { color: #888; background: #777 }</style>
<p style="width: 3000px">wide</p><img src="https://example.invalid/x.png">
<script>console.error("no"); undefined_name()</script>"""
"""Everything that the checks below must notice."""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of pages: one subject, several with awkward names, none, and a broken page."""
    folder = tmp_path_factory.mktemp("pages")
    awkward = [
        "tiny:mamba",
        "/srv/" + "a-very-long-name-without-an-end" * 4,
        "<script>pwned=1</script>",
    ]
    rows = [row for name in awkward for row in sample(name)]
    command = "pytest --replay " + "A" * 900
    example = Counterexample({"p" * 60: "'x'(1) " * 300}, replay=command)
    rows[6] = replace(rows[6], counterexample=example)
    replace_file(
        folder / "one.html", render(sample_run(), sample(), {("C1", LARGE): "unexpected"})
    )
    replace_file(folder / "many.html", render(sample_run(*awkward), rows))
    replace_file(folder / "none.html", render(sample_run(), []))
    results = [*findings(), finding(id="B6", plots=tuple(every_kind().values()))]
    replace_file(folder / "findings.html", render(sample_run(), results))
    (folder / "broken.html").write_text(BROKEN_PAGE)
    return folder


@pytest.mark.parametrize("name", ["one.html", "many.html", "none.html", "findings.html"])
@pytest.mark.parametrize(("width", "height", "scheme"), MODES)
def test_the_page_stands_in_every_window(
    browser: Browser, pages: Path, name: str, width: int, height: int, scheme: str
) -> None:
    browser.open(pages / name, width, height, scheme)
    assert browser.value(f"matchMedia('(prefers-color-scheme: {scheme})').matches")
    assert browser.value("innerWidth") == width
    assert overflow(browser) <= 0
    assert complaints(browser) == []
    urls = [url for url in requests(browser) if not url.startswith("data:image/png;")]
    assert urls == [(pages / name).as_uri()]
    assert browser.value("typeof pwned") == "undefined"
    least, where = browser.value(TEXT_CONTRAST)
    assert least >= 4.5, where


def test_a_broken_page_would_be_noticed(browser: Browser, pages: Path) -> None:
    browser.open(pages / "broken.html", 360, 740, "light")
    assert overflow(browser) > 0
    assert len(complaints(browser)) >= 2
    assert "https://example.invalid/x.png" in requests(browser)
    assert browser.value(TEXT_CONTRAST)[0] < 4.5


@pytest.mark.parametrize(("width", "height", "scheme"), MODES)
def test_every_result_is_in_the_table_and_in_sight(
    browser: Browser, pages: Path, width: int, height: int, scheme: str
) -> None:
    browser.open(pages / "one.html", width, height, scheme)
    rows = "[...document.querySelectorAll('.verdicts tbody tr')]"
    assert browser.value(f"{rows}.length") == len(sample())
    assert browser.value(f"{rows}.every((row) => row.getClientRects().length)")
    inside = f"{rows}.every((row) => row.getBoundingClientRect().right <= innerWidth)"
    assert browser.value(inside)


PICTURES = "[...document.querySelectorAll('.gallery svg')]"


@pytest.mark.parametrize(("width", "height", "scheme"), MODES)
def test_pictures_of_findings_fit_and_are_in_the_pages_colours(
    browser: Browser, pages: Path, width: int, height: int, scheme: str
) -> None:
    browser.open(pages / "findings.html", width, height, scheme)
    assert browser.value(f"{PICTURES}.length") == len(every_kind())
    inside = "(svg) => { const b = svg.getBoundingClientRect();"
    inside += " return b.left >= 0 && b.right <= innerWidth && b.width > 250 && b.height > 150 }"
    assert browser.value(f"{PICTURES}.every({inside})")
    # Nothing is written beyond the edge of its picture, whatever the reader's fonts.
    beyond = "(svg) => [...svg.querySelectorAll('text')].every((text) => {"
    beyond += " const [a, b] = [svg, text].map((each) => each.getBoundingClientRect());"
    beyond += " return b.left >= a.left - 12 && b.right <= a.right + 12 })"
    assert browser.value(f"{PICTURES}.every({beyond})")
    fill = browser.value(f"getComputedStyle({PICTURES}[4].querySelector('text')).fill")
    assert fill == browser.value("getComputedStyle(document.querySelector('.note, small')).color")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_maps_diagonal_is_blue_and_its_ground_the_pages(
    browser: Browser, pages: Path, scheme: str, tmp_path: Path
) -> None:
    browser.open(pages / "findings.html", 1280, 900, scheme)
    place = "document.querySelector('.gallery image').getBoundingClientRect()"
    browser.value("document.querySelector('.gallery image').scrollIntoView({ block: 'center' })")
    x, y, side = (browser.value(f"{place}.{name}") for name in ("x", "y", "width"))
    browser.screenshot(tmp_path / "shot.png")
    shot = image.imread(tmp_path / "shot.png")[..., :3]
    cells = shot[round(y) : round(y + side), round(x) : round(x + side)]
    cell = side / 24
    diagonal = [cells[int((i + 0.5) * cell), int((i + 0.5) * cell)] for i in range(24)]
    for red, green, blue in diagonal:
        assert blue > green > red
    grey = float(np.median(cells))
    assert grey > 0.6 if scheme == "light" else grey < 0.5


def test_a_control_is_opened_by_keyboard_and_a_filter_hides_a_table(
    browser: Browser, pages: Path
) -> None:
    browser.open(pages / "findings.html", 1280, 900, "light")
    words = "document.querySelector('.findings details dd')"
    shown = f"{words}.checkVisibility()"
    assert browser.value(shown) is False
    browser.value("document.querySelector('.findings summary').focus()")
    browser.press("Enter")
    assert browser.value(shown) is True
    browser.open(pages / "one.html", 1280, 900, "light")
    browser.value("document.querySelector('[data-verdict=inconclusive]').click()")
    tables = "[...document.querySelectorAll('.kind')].map((each) => each.hidden)"
    assert browser.value(tables) == [True, False]


def test_the_screen_is_dark_in_the_dark_and_light_in_the_light(
    browser: Browser, pages: Path, tmp_path: Path
) -> None:
    grey = {}
    for scheme in ("light", "dark"):
        browser.open(pages / "one.html", 360, 740, scheme)
        browser.screenshot(tmp_path / "shot.png")
        grey[scheme] = image.imread(tmp_path / "shot.png")[..., :3]
    assert grey["light"].shape == (740, 360, 3)
    assert grey["light"].mean() > 0.75
    assert grey["dark"].mean() < 0.25
    assert min(shot.std() for shot in grey.values()) > 0.05  # something is written there


def test_the_table_is_filtered_and_sorted(browser: Browser, pages: Path) -> None:
    browser.open(pages / "one.html", 1280, 900, "light")
    shown = "[...document.querySelectorAll('.verdicts tbody tr:not([hidden]) .id')]"
    ids = f"{shown}.map((id) => id.textContent)"
    everything = browser.value(ids)
    browser.value("document.querySelector('[data-verdict=refuted]').click()")
    assert browser.value(ids) == ["C1"]
    assert browser.value("document.querySelector('.count').textContent") == "1 of 25 shown"
    browser.value("document.querySelector('[data-verdict=\"\"]').click()")
    browser.value("document.querySelector('th[data-key=\"1\"] button').click()")
    by_margin = browser.value(ids)
    assert by_margin[0] == "C1"
    assert sorted(by_margin[-4:-2]) == ["A8", "E21"]  # laws without a margin come last of them
    assert by_margin[-2:] == ["C7", "A1"]  # the findings, in their own table
    assert browser.value("document.querySelector('th[aria-sort]').textContent") == "Margin"
    browser.value("document.querySelector('th[data-key=\"0\"] button').click()")
    assert browser.value(ids) == everything
    search = "document.querySelector('input[type=search]')"
    browser.value(f"{search}.value = 'CACHE', {search}.dispatchEvent(new Event('input'))")
    assert browser.value(ids) == [r.id for r in sample() if "cache" in r.name]


def test_a_link_to_a_hidden_row_shows_it(browser: Browser, pages: Path) -> None:
    browser.open(pages / "one.html", 1280, 900, "light")
    browser.value("document.querySelector('[data-verdict=refuted]').click()")
    browser.value("document.querySelector('.strip a').click()")
    browser.value("new Promise((done) => setTimeout(done, 50))")
    assert browser.value("document.querySelector(location.hash).getClientRects().length") == 1


def test_the_keyboard_reaches_the_page(browser: Browser, pages: Path) -> None:
    browser.open(pages / "one.html", 1280, 900, "light")
    browser.press("Tab")
    assert browser.value("document.activeElement.className") == "skip"
    browser.press("Enter")
    assert browser.value("location.hash") == "#main"
    reached = []
    for _ in range(60):
        browser.press("Tab")
        reached.append(browser.value("document.activeElement.tagName"))
    assert {"A", "BUTTON", "INPUT", "SELECT", "DIV"} <= set(reached)


def test_without_its_script_the_page_says_the_same(browser: Browser, pages: Path) -> None:
    browser.ask("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(pages / "one.html", 360, 740, "light")
        rows = browser.value("document.querySelectorAll('.verdicts tbody tr').length")
        controls = browser.value("document.querySelector('.controls').getClientRects().length")
    finally:
        browser.ask("Emulation.setScriptExecutionDisabled", value=False)
    assert (rows, controls) == (len(sample()), 0)


def test_on_paper_the_page_is_light_and_holds_its_table(browser: Browser, pages: Path) -> None:
    browser.open(pages / "one.html", 720, 1000, "dark")
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.ask("Emulation.setEmulatedMedia", media="print", features=dark)
    shown = "getComputedStyle(document.querySelector({})).display"
    assert browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.value(shown.format("'.controls'")) == "none"
    assert browser.value(shown.format("'.verdicts'")) == "table"
    assert overflow(browser) <= 0
    least, where = browser.value(TEXT_CONTRAST)
    assert least >= 4.5, where
