"""Findings in the terminal and on the page: statistic, interval, bound and control are there."""

from __future__ import annotations

import io
import math
import re
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from assay.harness.checking.samples import Sample
from assay.harness.report import intervals, pictures, words
from assay.harness.report.glyphs import Glyphs
from assay.harness.report.progress import Progress
from assay.harness.report.terminal_tables import strip
from assay.harness.results.arrays import Plot
from assay.harness.results.encoding import decode, encode
from assay.harness.results.verdicts import Kind, Result, Verdict
from assay.harness.tests.support.pages import HOSTILE, Reader, html_of, page, printed
from assay.harness.tests.support.sample_findings import DETAILS, finding, findings
from assay.harness.tests.support.sample_runs import LARGE, sample


def drawn(row: Result) -> str:
    """The picture of ``row`` in a terminal's cells."""
    return strip(Glyphs(Console(file=io.StringIO())), row).plain


def row_of(text: str, index: int) -> str:
    """The markup of one row of the page's tables."""
    row = re.search(rf'<tr role="row" id="c{index}".*?</tr>', text, re.DOTALL)
    assert row
    return row[0]


# -- numbers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "interval", "text"),
    [
        (0.0712, (0.058, 0.089), "0.071 [0.058, 0.089]"),
        (12.14, (10.2, 14.0), "12.1 [10.2, 14.0]"),
        (0.99871, (0.99789, 0.9993), "0.9987 [0.9979, 0.9993]"),
        (-0.0001, (-0.01, 0.02), "0.000 [-0.010, 0.020]"),
        (3e-7, (1e-7, 5e-7), "3e-7 [1e-7, 5e-7]"),
        (0.61, (0.61, 0.61), "0.61"),
        (0.5, None, "0.5"),
        (0.5, [0.1, None], "0.5 [0.1, ∞]"),
        (None, None, "–"),
        (math.nan, (math.nan, math.nan), "–"),
        ("many", "wide", "–"),
    ],
)
def test_an_estimate_has_the_decimals_that_its_interval_resolves(
    value: Any, interval: Any, text: str
) -> None:
    assert intervals.together(value, interval).replace("-0.000", "0.000") == text


def test_what_is_claimed_is_in_the_claims_own_words_or_the_bound() -> None:
    assert intervals.claimed(finding()) == "median ≤ 0.25"
    assert intervals.claimed(finding(details={})) == "0.25"
    assert intervals.claimed(finding(details={"claimed": 7}, bound=None)) == "–"


def test_a_margin_is_told_in_half_widths_where_there_is_a_width() -> None:
    assert intervals.clearance(finding()) == "+10.4"
    assert intervals.clearance(finding(margin=16.0)) == "> 16"
    assert intervals.clearance(finding(margin=-16.0)) == "< -16"
    assert intervals.clearance(finding(interval=(0.1, 0.1), margin=16.0)) == "–"
    assert intervals.clearance(finding(interval=None, margin=-16.0)) == "–"


# -- the picture of an interval ---------------------------------------------------------------


def test_the_strip_has_interval_point_and_bound_in_their_order() -> None:
    places = intervals.strip(finding())
    assert places is not None
    (limit,) = places.limits
    low, high = places.span or (0, 0)
    assert low < (places.point or 0) < high < limit < 1
    assert places.claimed == (0.0, limit)
    assert places.beyond == 1  # the control is far off, and said to be


def test_a_control_that_is_near_is_on_the_strip() -> None:
    near = finding(details=DETAILS | {"control value": 0.4, "control interval": (0.3, 0.5)})
    places = intervals.strip(near)
    assert places is not None
    assert places.beyond == 0
    assert max(places.limits) < (places.control or (0, 0))[0] < (places.control_point or 0) < 1


def test_a_claim_with_two_limits_has_both_and_its_side_between_them() -> None:
    places = intervals.strip(findings()[2])
    assert places is not None
    assert len(places.limits) == 2
    assert places.claimed == places.limits


@pytest.mark.parametrize(
    ("changes", "picture"),
    [
        ({}, r" ─━*●━*─*┃ *"),
        ({"observed": 0.71, "interval": (0.66, 0.79)}, r" ─+┃ +━+●━+ *"),
        ({"observed": 0.24, "interval": (0.1, 0.4)}, r" ─+━+●┃━+ *"),
        ({"details": {"claimed": "mean > 0.05"}}, r" +┃─*━*●━+─*"),
        ({"observed": 0.2, "interval": None}, r" ─●─+┃ *"),
        ({"details": {}}, r" +━*●━* +┃ *"),
        ({"observed": None, "interval": None}, r" +"),
        ({"details": {}, "bound": None}, r" +"),
    ],
)
def test_a_terminal_shows_on_which_side_of_the_bound_the_interval_lies(
    changes: dict[str, Any], picture: str
) -> None:
    shown = drawn(finding(**changes))
    assert len(shown) == 16
    assert re.fullmatch(picture, shown), shown


def test_a_point_and_its_bound_are_both_seen_however_near() -> None:
    for value, picture in ((0.2499999, "●┃"), (0.2500001, "┃●")):
        shown = drawn(finding(observed=value, interval=(0.0, 0.5)))
        assert picture in shown


numbers = st.none() | st.floats() | st.integers(-3, 3) | st.text(max_size=3) | st.booleans()


@given(numbers, numbers, st.none() | st.tuples(numbers, numbers), st.data())
def test_whatever_a_finding_holds_it_can_be_shown(
    observed: Any, bound: Any, interval: Any, data: st.DataObject
) -> None:
    claimed = data.draw(st.sampled_from(["x ≤ 1e400", "≥ 2 and ≤ 1", "≤ .", "≤ 1.2.3", "", 5]))
    kept = {"claimed": claimed, "control value": data.draw(numbers)}
    kept["control interval"] = data.draw(numbers | st.lists(numbers, max_size=3))
    row = finding(observed=intervals.real(observed), bound=intervals.real(bound),
                interval=interval, details=kept)  # fmt: skip
    assert len(drawn(row)) == 16
    assert intervals.together(observed, interval)
    places = intervals.strip(row)
    if places is not None:
        positions = [*places.limits, *(places.span or ()), *(places.control or ())]
        assert all(0 <= place <= 1 for place in positions)


# -- terminal -------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("explain", [False, True])
def test_findings_have_a_table_of_their_own_that_fits(width: int, explain: bool) -> None:
    laws = [row for row in sample(broken=False) if row.kind is Kind.LAW]
    text = printed(*laws, *findings(), width=width, explain=explain)
    lines = text.splitlines()
    assert all(len(line) <= width for line in lines)
    heads = [line.split()[0] for line in lines if " verdict " in line]
    assert heads == ["law", "finding"]
    assert "0.071 [0.058, 0.089]" in text
    assert "median ≤ 0.25" in text
    assert ("top-1 agreement 0.93" in " ".join(text.split())) == explain
    assert ("12.1 [10.2, 14.0]" in text) == explain


def test_a_run_of_findings_alone_has_no_table_of_laws() -> None:
    text = printed(*findings())
    assert "finding " in text
    assert " law " not in text
    assert "2 of 5 findings that apply are upheld" in text


def test_an_ascii_terminal_gets_the_strip_in_ascii() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    shown = strip(Glyphs(Console(file=stream)), finding()).plain
    assert re.fullmatch(r" -=*o=*-*\| *", shown)


def test_a_finished_finding_is_one_line_with_its_interval() -> None:
    console = Console(file=io.StringIO(), width=80)
    progress = Progress()
    progress.start(1, console)
    progress.update(finding())
    progress.stop()
    line = console.file.getvalue()  # type: ignore[attr-defined]
    assert line == "[1/1] A1 on reference:large, upheld, 0.071 [0.058, 0.089], 6.2 s\n"


# -- words ----------------------------------------------------------------------------------


def _all(**counts: int) -> list[Result]:
    return [finding(verdict=Verdict[name]) for name, n in counts.items() for _ in range(n)]


@pytest.mark.parametrize(
    ("results", "sentence"),
    [
        (_all(UPHELD=1), f"The one finding that applies to {LARGE} is upheld."),
        (_all(REFUTED=1), f"The one finding that applies to {LARGE} is refuted."),
        (_all(UPHELD=2, NOT_APPLICABLE=1), f"All 2 findings that apply are upheld on {LARGE}."),
        (
            _all(UPHELD=1, REFUTED=2, INCONCLUSIVE=1),
            f"1 of 4 findings that apply is upheld on {LARGE};"
            " 2 are refuted and 1 is not decided.",
        ),
        (_all(NOT_APPLICABLE=1), f"No finding applies to {LARGE}."),
    ],
)
def test_without_laws_the_headline_is_about_findings(results: list[Result], sentence: str) -> None:
    assert words.headline(results) == sentence
    assert words.of_findings(results) == ""


@pytest.mark.parametrize(
    ("counts", "sentence"),
    [
        ({}, ""),
        ({"NOT_APPLICABLE": 2}, ""),
        ({"REFUTED": 1}, "The one finding is refuted."),
        ({"UPHELD": 3}, "Of 3 findings, 3 are upheld."),
        ({"UPHELD": 2, "REFUTED": 1}, "Of 3 findings, 2 are upheld and 1 is refuted."),
        (
            {"UPHELD": 1, "REFUTED": 1, "INCONCLUSIVE": 2, "NOT_APPLICABLE": 1},
            "Of 4 findings, 1 is upheld, 1 is refuted and 2 are inconclusive.",
        ),
    ],
)
def test_beside_laws_one_sentence_counts_the_findings(
    counts: dict[str, int], sentence: str
) -> None:
    laws = [row for row in sample(broken=False) if row.kind is Kind.LAW]
    assert words.of_findings([*laws, *_all(**counts)]) == sentence
    assert words.headline([*laws, *_all(**counts)]).startswith("All 21 laws")


# -- the page -------------------------------------------------------------------------------


def test_a_row_shows_statistic_interval_claim_and_control() -> None:
    row = row_of(page(*findings()), 0)
    plain = html_of(DETAILS["control"])
    for wanted in ("0.071", "[0.058, 0.089]", "median ≤\u00a00.25", "+10.4", "12.1 [10.2, 14.0]",
                   plain, "beyond: median", "top-1 agreement <b>0.93</b>"):  # fmt: skip
        assert wanted in row, wanted
    (picture,) = re.findall(r'<svg class="interval".*?</svg>', row)
    assert picture.count("<path") == 1 + 1 + 2 + 1  # axis, bound, interval and point, an arrow


def test_what_a_finding_lacks_is_left_out_of_its_row() -> None:
    text = page(*findings())
    rows = dict(
        zip(("A1", "A2", "A9", "A12", "E8", "F5"), map(row_of, [text] * 6, range(6)), strict=True)
    )
    assert "<svg" not in rows["A9"]  # does not apply
    assert "Control" not in rows["A9"]
    assert "Control" not in rows["A12"]  # has no details
    assert '<svg class="interval"' in rows["A12"]
    assert "<svg" not in rows["F5"]  # neither value nor interval
    assert "no draw has a value" in rows["F5"]


def test_laws_and_findings_are_told_apart_on_the_page() -> None:
    text = page(*sample(), *findings())
    reader = Reader(text)
    tables = [a["class"] for a in reader.all("table")]
    assert tables == ["verdicts laws", "verdicts findings"]
    links = [a for a in reader.all("a") if re.fullmatch(r"#c\d+", a.get("href") or "")]
    assert len(links) == len(sample()) + len(findings())
    assert sum("found" in (a["class"] or "") for a in links) == 2 + len(findings())


def test_the_picture_of_margins_leaves_findings_out() -> None:
    laws = [row for row in sample() if row.kind is Kind.LAW]
    assert pictures.drawable([*laws, *findings()]) == pictures.drawable(laws)
    assert pictures.drawable(findings()) == []
    assert "that a log scale cannot show" not in page(*laws, *findings())
    assert 'id="margins"' not in page(*findings())


def test_nothing_of_a_finding_becomes_markup() -> None:
    details = {key: HOSTILE for key in DETAILS} | {"recorded": {HOSTILE: 1.0}, HOSTILE: HOSTILE}
    text = page(finding(details=details), finding(details=details | {"recorded": HOSTILE}))
    reader = Reader(text)
    assert len(reader.all("script")) == 1
    assert not reader.all("img")


def test_nobody_waits_for_matplotlib_without_a_picture() -> None:
    script = "import sys, assay.harness.report.html; print('matplotlib' in sys.modules)"
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert process.stdout.strip() == b"False"


# Tables of text.


def test_a_table_of_text_is_shown_row_by_row_and_nothing_in_it_is_markup():
    drawn = Sample()
    drawn.table("Decoded", ["steps", "text"], [["20", "<b>the</b>"], ["the input", "the sky"]])
    (kept,) = drawn.plots.values()
    again = decode(encode(kept), Plot)
    assert (again.kind, again.columns, again.rows) == ("table", kept.columns, kept.rows)
    text = page(finding(plots=(again,)))
    assert "<dd>the sky</dd>" in text
    assert "&lt;b&gt;the&lt;/b&gt;" in text
    assert "<b>the</b>" not in text
