"""The page in a real browser: nothing sticks out or fails, and the table is filtered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from assay.harness.report.html import render
from assay.harness.results.verdicts import Counterexample
from assay.harness.tests.support.browsers import (
    PROBLEMS,
    ask,
)
from assay.harness.tests.support.sample_findings import finding, findings
from assay.harness.tests.support.sample_plots import every_kind
from assay.harness.tests.support.sample_runs import LARGE, sample, sample_run

pytestmark = pytest.mark.nightly

BOTH = "color-scheme: light dark;"

BROKEN = """<!doctype html><style>body { color: #888; background: #777 }</style>
<p style="width: 3000px">wide</p><script>console.error("no")</script>"""
"""A page with all that `PROBLEMS` must notice."""


def pages() -> dict[str, str]:
    """One subject, several with awkward names, none, and findings with pictures."""
    awkward = ["tiny:mamba", "/srv/" + "a-very-long-name" * 9, "<script>pwned=1</script>"]
    rows = [row for name in awkward for row in sample(name)]
    example = Counterexample({"p" * 60: "'x'(1) " * 300}, replay="pytest --replay " + "A" * 900)
    rows[6] = replace(rows[6], counterexample=example)
    return {
        "one": render(sample_run(), sample(), {("C1", LARGE): "unexpected"}),
        "many": render(sample_run(*awkward), rows),
        "none": render(sample_run(), []),
        "findings": render(
            sample_run(), [*findings(), finding(id="B6", plots=tuple(every_kind().values()))]
        ),
    }


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 1280])
def test_every_page_fits_its_window_and_can_be_read(
    tmp_path: Path, width: int, dark: bool
) -> None:
    shown = pages()
    if dark:
        shown = {name: text.replace(BOTH, "color-scheme: dark;") for name, text in shown.items()}
    problems, complaints = ask(tmp_path, shown, PROBLEMS, width)
    assert problems == {name: [] for name in shown}
    assert complaints == []


def test_a_broken_page_would_be_noticed(tmp_path: Path) -> None:
    problems, complaints = ask(tmp_path, {"broken": BROKEN}, PROBLEMS, 360)
    wide, contrast = problems["broken"]
    assert wide.startswith("wider than")
    assert contrast.startswith("contrast")
    assert len(complaints) == 1


IDS = """const ids = () =>
  [...page.querySelectorAll(".verdicts tbody tr:not([hidden]) .id")].map((e) => e.textContent)"""


def answer(tmp_path: Path, *steps: str) -> Any:
    """What the page of one run comes to after these steps."""
    question = f"async (page, window) => {{ {'; '.join([IDS, *steps])} }}"
    answers, _ = ask(tmp_path, {"one": pages()["one"]}, question)
    return answers["one"]


def click(selector: str) -> str:
    return f"page.querySelector('{selector}').click()"


def test_the_table_is_filtered_sorted_and_searched(tmp_path: Path) -> None:
    search = "const box = page.querySelector('input[type=search]'); box.value = 'CACHE'"
    everything, refuted, count, by_margin, back, matches = answer(
        tmp_path,
        "const seen = [ids()]",
        click("[data-verdict=refuted]"),
        "seen.push(ids(), page.querySelector('.count').textContent)",
        click('[data-verdict=""]'),
        click('th[data-key="1"] button'),
        "seen.push(ids())",
        click('th[data-key="0"] button'),
        "seen.push(ids())",
        f"{search}; box.dispatchEvent(new window.Event('input'))",
        "return [...seen, ids()]",
    )
    assert (refuted, count) == (["C1"], f"1 of {len(sample())} shown")
    assert by_margin[0] == "C1"
    assert sorted(by_margin[-4:-2]) == ["A8", "E21"]  # laws without a margin come last of them
    assert by_margin[-2:] == ["C7", "A1"]  # the findings, in their own table
    assert back == everything
    assert matches == [row.id for row in sample() if "cache" in row.name]


def test_a_link_to_a_hidden_row_shows_it(tmp_path: Path) -> None:
    shown = answer(
        tmp_path,
        click("[data-verdict=refuted]"),
        "const link = page.querySelector('.strip a').getAttribute('href')",
        "window.location.hash = link",
        "await new Promise((done) => setTimeout(done, 50))",
        "return page.querySelector(link).getClientRects().length",
    )
    assert shown == 1
