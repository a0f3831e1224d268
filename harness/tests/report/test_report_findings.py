"""Findings in the terminal and on the page: statistic, interval, bound and control are there."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.harness.checking.samples import Sample
from assay.harness.report import intervals
from assay.harness.report.terminal_tables import strip
from assay.harness.results.arrays import Plot
from assay.harness.results.encoding import decode, encode
from assay.harness.results.verdicts import Result
from assay.harness.tests.support.pages import Reader, html_of, page, printed
from assay.harness.tests.support.sample_findings import DETAILS, finding, findings
from assay.harness.tests.support.sample_runs import LAWS, sample


def drawn(row: Result) -> str:
    """The picture of ``row`` in a terminal's cells."""
    return strip(row).plain


@pytest.mark.parametrize(
    ("value", "interval", "text"),
    [
        (0.0712, (0.058, 0.089), "0.071 [0.058, 0.089]"),
        (12.14, (10.2, 14.0), "12.1 [10.2, 14.0]"),
        (0.99871, (0.99789, 0.9993), "0.9987 [0.9979, 0.9993]"),
        (3e-7, (1e-7, 5e-7), "3e-7 [1e-7, 5e-7]"),
        (0.61, (0.61, 0.61), "0.61"),
        (0.5, [0.1, None], "0.5 [0.1, ∞]"),
        (math.nan, (math.nan, math.nan), "–"),
        ("many", "wide", "–"),
    ],
)
def test_an_estimate_has_the_decimals_that_its_interval_resolves(
    value: Any, interval: Any, text: str
) -> None:
    assert intervals.together(value, interval) == text


def test_a_claim_and_its_margin_are_in_their_own_words() -> None:
    assert intervals.claimed(finding()) == "median ≤ 0.25"
    assert intervals.claimed(finding(details={})) == "0.25"
    assert intervals.claimed(finding(details={"claimed": 7}, bound=None)) == "–"
    assert intervals.clearance(finding()) == "+10.4"  # half-widths
    assert intervals.clearance(finding(margin=16.0)) == "> 16"
    assert intervals.clearance(finding(interval=(0.1, 0.1), margin=16.0)) == "–"


# -- the picture of an interval ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "picture"),
    [
        ({}, r" ─━*●━*─*┃ *"),
        ({"observed": 0.71, "interval": (0.66, 0.79)}, r" ─+┃ +━+●━+ *"),
        ({"observed": 0.24, "interval": (0.1, 0.4)}, r" ─+━+●┃━+ *"),
        ({"observed": 0.2499999, "interval": (0.0, 0.5)}, r".*●┃.*"),
        ({"observed": 0.2500001, "interval": (0.0, 0.5)}, r".*┃●.*"),
        ({"observed": 0.2, "interval": None}, r" ─●─+┃ *"),
        ({"details": {}, "bound": None}, r" +"),
    ],
)
def test_a_terminal_shows_on_which_side_of_the_bound_the_interval_lies(
    changes: dict[str, Any], picture: str
) -> None:
    shown = drawn(finding(**changes))
    assert len(shown) == 16
    assert re.fullmatch(picture, shown), shown


numbers = st.none() | st.floats() | st.integers(-3, 3) | st.text(max_size=3) | st.booleans()


@given(numbers, numbers, st.none() | st.tuples(numbers, numbers), st.data())
def test_whatever_a_finding_holds_it_can_be_shown(
    observed: Any, bound: Any, interval: Any, data: st.DataObject
) -> None:
    claimed = data.draw(st.sampled_from(["x ≤ 1e400", "≥ 2 and ≤ 1", "≤ .", "≤ 1.2.3", "", 5]))
    details = {"claimed": claimed, "control value": data.draw(numbers)}
    details["control interval"] = data.draw(numbers | st.lists(numbers, max_size=3))
    row = finding(observed=intervals.real(observed), bound=intervals.real(bound),
                interval=interval, details=details)  # fmt: skip
    assert len(drawn(row)) == 16
    assert intervals.together(observed, interval)
    places = intervals.strip(row)
    if places is not None:
        positions = [*places.limits, *(places.span or ()), *(places.control or ())]
        assert all(0 <= place <= 1 for place in positions)


# -- terminal and page ------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "explain"), [(80, False), (120, True)])
def test_findings_have_a_table_of_their_own_that_fits(width: int, explain: bool) -> None:
    laws = sample(broken=False)[: len(LAWS)]
    text = printed(*laws, *findings(), width=width, explain=explain)
    lines = text.splitlines()
    assert all(len(line) <= width for line in lines)
    heads = [line.split()[0] for line in lines if " verdict " in line]
    assert heads == ["law", "finding"]
    assert "0.071 [0.058, 0.089]" in text
    assert "median ≤ 0.25" in text
    assert ("top-1 agreement 0.93" in " ".join(text.split())) == explain
    assert ("12.1 [10.2, 14.0]" in text) == explain


def rows_of(text: str) -> list[str]:
    """The markup of the rows of a page's tables."""
    return re.findall(r'<tr role="row" id="c\d+".*?</tr>', text, re.DOTALL)


def test_a_row_shows_statistic_interval_claim_and_control_or_lacks_them() -> None:
    a1, _, a9, a12, _, f5 = rows_of(page(*findings()))
    plain = html_of(DETAILS["control"])
    for wanted in ("0.071", "[0.058, 0.089]", "median ≤\u00a00.25", "+10.4", "12.1 [10.2, 14.0]",
                   plain, "beyond: median", "top-1 agreement <b>0.93</b>"):  # fmt: skip
        assert wanted in a1, wanted
    (picture,) = re.findall(r'<svg class="interval".*?</svg>', a1)
    assert picture.count("<path") == 1 + 1 + 2 + 1  # axis, bound, interval and point, an arrow
    assert "<svg" not in a9  # does not apply
    assert "Control" not in a9 + a12
    assert '<svg class="interval"' in a12
    assert "<svg" not in f5  # neither value nor interval
    assert "no draw has a value" in f5


def test_laws_and_findings_are_told_apart_on_the_page() -> None:
    reader = Reader(page(*sample(), *findings()))
    tables = [a["class"] for a in reader.all("table")]
    assert tables == ["verdicts laws", "verdicts findings"]
    links = [a for a in reader.all("a") if re.fullmatch(r"#c\d+", a.get("href") or "")]
    assert len(links) == len(sample()) + len(findings())


def test_nobody_waits_for_matplotlib_without_a_picture() -> None:
    script = "import sys, assay.harness.report.html; print('matplotlib' in sys.modules)"
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert process.stdout.strip() == b"False"


def test_a_table_of_text_is_shown_row_by_row_and_nothing_in_it_is_markup() -> None:
    sample = Sample()
    sample.table("Decoded", ["steps", "text"], [["20", "<b>the</b>"], ["the input", "the sky"]])
    (table,) = sample.plots.values()
    again = decode(encode(table), Plot)
    assert (again.kind, again.columns, again.rows) == ("table", table.columns, table.rows)
    row = finding(plots=(again,))
    assert "the input: the sky" in printed(row, explain=True)
    text = page(row)
    assert "<dd>the sky</dd>" in text
    assert "&lt;b&gt;the&lt;/b&gt;" in text
    assert "<b>the</b>" not in text
