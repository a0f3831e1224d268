"""The table, the live line and the page say what the results say, whatever is in them."""

from __future__ import annotations

import io
import math
import os
import re
import warnings
from collections import Counter
from contextlib import suppress
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from msgspec.structs import asdict, replace
from rich.console import Console

from assay.harness.report import pictures, texts, words
from assay.harness.report.html import render
from assay.harness.report.progress import Progress
from assay.harness.report.terminal import print_table
from assay.harness.results.records import SubjectRecord
from assay.harness.results.verdicts import Counterexample, Kind, Result, Verdict, margin
from assay.harness.tests.support.pages import HOSTILE, Reader, html_of, page, printed
from assay.harness.tests.support.sample_runs import (
    COUNTEREXAMPLE,
    LARGE,
    NO_DISTANCE,
    many,
    one,
    sample,
    sample_run,
)

# -- words ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"), (math.nan, "NaN"), (math.inf, "∞"), (-math.inf, "-∞"), (0.0, "0"),
        (0.071, "0.071"), (2.14e-6, "2.1e-6"), (1e-12, "1e-12"), (-3.0, "-3"), (4e5, "4e5"),
    ],
)  # fmt: skip
def test_a_number_is_short_and_says_what_it_is(value: float | None, text: str) -> None:
    assert texts.number(value) == text


def test_a_raised_exponent_says_the_same_number() -> None:
    assert texts.power(2.14e-16) == "2.1×10⁻¹⁶"
    assert texts.power(1e-12) == "10⁻¹²"
    assert texts.power(0.071) == "0.071"


def _laws(**counts: int) -> list[Result]:
    return [replace(one(), verdict=Verdict[name]) for name, n in counts.items() for _ in range(n)]


@pytest.mark.parametrize(
    ("results", "sentence"),
    [
        ([], "No claim was checked."),
        (_laws(NOT_APPLICABLE=2), f"No law applies to {LARGE}."),
        (_laws(UPHELD=1), f"The one law that applies to {LARGE} holds."),
        (_laws(REFUTED=1), f"The one law that applies to {LARGE} is broken."),
        (_laws(UPHELD=3, NOT_APPLICABLE=1), f"All 3 laws that apply hold on {LARGE}."),
        (
            _laws(UPHELD=3, REFUTED=2, INCONCLUSIVE=1),
            f"3 of 6 laws that apply hold on {LARGE}; 2 are broken and 1 is not decided.",
        ),
        (
            [*_laws(UPHELD=2), one(subject="tiny:llama")],
            "2 of 3 checks of laws hold on 2 subjects; 1 is broken.",
        ),
        ([*_laws(NOT_APPLICABLE=1), one(kind=Kind.FINDING)], f"No law applies to {LARGE}."),
    ],
)
def test_the_headline_says_how_many_laws_hold_on_what(
    results: list[Result], sentence: str
) -> None:
    assert words.headline(results) == sentence


def test_claims_come_in_the_catalogues_order() -> None:
    groups = words.by_subject(sample_run(), sample())
    ids = [result.id for result in groups[LARGE]]
    assert ids.index("C2") < ids.index("C10") < ids.index("C11") < ids.index("D2")


def test_a_shortened_name_keeps_the_variant_it_ends_with() -> None:
    short = texts.shortened("cached decoding equals recomputation [static]", 30)
    assert short == "cached decoding equa… [static]"
    assert texts.shortened("short", 30) == "short"


# -- terminal -------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_fits_the_terminal(width: int) -> None:
    lines = printed(*sample(), width=width).splitlines()
    assert all(len(line) <= width for line in lines if "pytest claims/" not in line)
    assert sum("✓ upheld" in line for line in lines) == 21
    summary = " ".join(lines[-1].split())
    assert summary == "✓ 21 upheld ✗ 1 refuted ? 1 inconclusive – 2 not applicable"
    assert any("2.3e-5" in line for line in lines)


def test_a_pipe_gets_no_colours_and_a_terminal_does() -> None:
    assert "\x1b" not in printed(*sample())
    assert "\x1b[32m" in printed(*sample(), tty=True)


def test_the_replay_command_is_alone_on_one_unbroken_line() -> None:
    assert COUNTEREXAMPLE.replay in printed(*sample()).splitlines()


def test_a_counterexample_shows_tokens_ids_and_both_numbers() -> None:
    text = printed(one())
    for wanted in ("' value'(1988)", "appended", "at position 2", "0.0314", "1.9e-5"):
        assert wanted in text


def test_claims_that_do_not_apply_are_one_line_unless_explained() -> None:
    brief, whole = printed(*sample()), printed(*sample(), explain=True)
    assert "2 claims do not apply (--explain says why)" in brief
    assert NO_DISTANCE not in brief
    assert whole.count("needs rotary") == 2
    assert "E21" in whole


def test_a_reason_and_a_judgement_stand_with_their_claim() -> None:
    name = one().name
    text = printed(one(), judgements={(name, LARGE): "unexpected", (name, "other"): "wrong"})
    assert "the state at position 2 moved" in text
    assert "→ unexpected" in text
    assert "wrong" not in text


def test_a_claim_that_should_have_applied_stands_with_the_others() -> None:
    row = one(verdict=Verdict.NOT_APPLICABLE, counterexample=None)
    assert "unexpected" not in printed(row)
    text = printed(row, judgements={(row.name, LARGE): "unexpected: not applicable"})
    assert "→ unexpected" in text
    assert "does not apply" not in text


def test_an_ascii_terminal_gets_ascii() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    print_table(Console(file=stream, width=80), sample_run(), [*sample(), one(name="ein Maß")])
    stream.flush()
    text = stream.buffer.getvalue().decode("ascii")  # type: ignore[attr-defined]
    assert "+ upheld" in text
    assert "x refuted" in text
    assert "ein Ma\\xdf" in text


def test_tokens_cannot_steer_the_terminal() -> None:
    drawn = {"\x1b[2J": "\x1b]0;title\x07 \u202e \ud800 [red]x[/red]"}
    example = replace(COUNTEREXAMPLE, inputs=drawn)
    text = printed(one(counterexample=example, name="[bold]x", reason="\x9b1m"), tty=True)
    assert "\x1b]0;" not in text
    assert "\x1b[2J" not in text
    assert "\x9b" not in text
    assert "\\x1b]0;title\\x07 \\u202e \\ud800 [red]x[/red]" in text


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -16.0])
def test_numbers_that_are_none_do_not_stop_table_or_page(value: float | None) -> None:
    result = one(
        observed=value, bound=value, margin=value, seconds=value, interval=(0.0, math.nan)
    )
    assert "refuted" in printed(result)
    assert "refuted" in page(result)


def test_no_results_and_a_thousand_are_both_fine() -> None:
    assert "No claim was checked." in printed()
    assert "No claim was checked." in page()
    assert printed(*many()).count("E21") == 0
    assert printed(*many(), explain=True).count("E21") == 40


# -- the live line --------------------------------------------------------------------------


def test_off_a_terminal_every_finished_claim_is_one_line() -> None:
    console = Console(file=io.StringIO(), width=80)
    progress = Progress()
    progress.start(2, console)
    progress.begin("C1", LARGE)
    progress.note("loaded")
    for result in (one(), sample()[-1]):
        progress.update(result)
    progress.stop()
    assert console.file.getvalue().splitlines() == [  # type: ignore[attr-defined]
        "loaded",
        "[1/2] C1 on reference:large, refuted, margin -3.2, 2.6 s",
        "[2/2] E21 on reference:large, not applicable",
    ]


def test_progress_may_be_stopped_twice_or_never_started() -> None:
    progress = Progress()
    progress.stop()
    progress.update(one())
    progress.note("nobody listens")
    console = Console(file=io.StringIO())
    progress.start(1, console)
    progress.stop()
    progress.stop()
    progress.update(one())
    assert console.file.getvalue() == ""  # type: ignore[attr-defined]


def test_on_a_terminal_the_line_lives_on_while_output_is_captured() -> None:
    pty = pytest.importorskip("pty", reason="missing capability: pseudo-terminals")
    reader, writer = pty.openpty()
    with os.fdopen(writer, "w") as stream:
        progress = Progress()
        progress.start(3, Console(file=stream, force_terminal=True, width=80))
        # As pytest does while a test runs: the descriptor now points elsewhere.
        elsewhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(elsewhere, writer)
        os.close(elsewhere)
        progress.begin("C2", LARGE)
        progress.update(one())
        progress.note("a note")
        progress.stop()
    text = _drained(reader).decode()
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    assert "C2 on reference:large" in plain
    assert "1/3" in plain
    assert "✗ 1" in plain
    assert "a note\r\n" in plain
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1  # the cursor is back


def _drained(reader: int) -> bytes:
    """All that was written to a terminal whose other end is closed: one read gives a part."""
    parts = []
    with os.fdopen(reader, "rb", buffering=0) as stream, suppress(OSError):  # Linux ends in EIO
        while part := stream.read(1 << 16):
            parts.append(part)
    return b"".join(parts)


def test_nothing_that_comes_from_a_run_becomes_markup() -> None:
    made = Counterexample({HOSTILE: HOSTILE}, where=HOSTILE, replay=HOSTILE)
    bad = one(id=HOSTILE, name=HOSTILE, subject=HOSTILE, reason=HOSTILE, counterexample=made)
    absent = replace(bad, verdict=Verdict.NOT_APPLICABLE, counterexample=None)
    texts = [name for name, each in asdict(sample_run()).items() if isinstance(each, str)]
    run = replace(
        *(sample_run(),),
        **dict.fromkeys(texts, HOSTILE),
        versions={HOSTILE: HOSTILE},
        subjects={HOSTILE: SubjectRecord(missing={HOSTILE: HOSTILE})},
    )
    text = render(run, [bad, absent, one()], {(HOSTILE, HOSTILE): HOSTILE})
    reader = Reader(text)
    assert len(reader.all("script")) == 1
    assert not reader.all("img")
    assert not any(name.startswith("on") for _, a in reader.elements for name in a)
    assert "&lt;script&gt;alert(1)" in text
    assert "7*7" in text


def test_the_page_asks_for_nothing_from_anywhere() -> None:
    text = page(*sample())
    reader = Reader(text)
    assert "//" not in re.sub(r"^ *// .*$", "", text, flags=re.MULTILINE)
    assert all(link.startswith(("#", "data:,")) for link in reader.values("href"))
    assert not reader.values("src")
    assert not re.search(r"@import|url\((?!#)", text)
    assert "default-src 'none'" in text


def test_ids_are_unique_and_links_lead_somewhere() -> None:
    run = sample_run("one", "two")
    reader = Reader(render(run, [*sample("one"), *sample("two")]))
    ids = Counter(reader.values("id"))
    assert max(ids.values()) == 1
    assert {link[1:] for link in reader.values("href") if link.startswith("#")} <= set(ids)
    assert set(reader.values("aria-labelledby")) <= set(ids)


def test_the_page_can_be_heard_and_used_by_keyboard() -> None:
    reader = Reader(page(*sample()))
    headings = [int(tag[1]) for tag, _ in reader.elements if re.fullmatch("h[1-6]", tag)]
    assert reader.all("html")[0]["lang"] == "en"
    assert headings.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(headings))
    assert all(head.get("scope") in ("col", "row") for head in reader.all("th"))
    assert all(figure.get("aria-label") for figure in reader.all("figure"))
    shown = [a for _, a in reader.elements if a.get("role") == "img"]
    assert shown
    assert "1 beyond what is allowed" in (shown[0]["aria-label"] or "")


def test_the_page_holds_every_result_and_says_why_claims_do_not_apply() -> None:
    undecided = next(r.name for r in sample() if r.id == "C7")
    text = page(*sample(), judgements={(undecided, LARGE): "expected: small model"})
    rows = re.findall(r'<tr role="row" id="c\d+" class="(\w+)"', text)
    assert Counter(rows) == {"upheld": 22 - 1, "refuted": 1, "inconclusive": 1, "absent": 2}
    assert f"20 of 21 laws that apply hold on {LARGE}; 1 is broken." in text
    assert text.count(NO_DISTANCE) == 2 + 1  # in the table and, for both, in their own section
    assert "expected: small model" in text
    assert sample_run().subjects[LARGE].digest in text
    assert html_of(COUNTEREXAMPLE.replay) in text


def test_a_thousand_results_stay_under_two_megabytes() -> None:
    text = render(sample_run(), many())
    assert len(text.encode()) < 2e6
    assert len(re.findall(r'<tr role="row" id="c', text)) == 1000


def test_a_run_with_enormous_counterexamples_stays_under_two_megabytes() -> None:
    drawn = {str(i): "'ö'(7)" * 20_000 for i in range(50)}
    example = Counterexample(drawn, replay="x" * 100_000)
    rows = [one(id=f"C{i}", name="n" * 5000, counterexample=example) for i in range(400)]
    text = page(*rows)
    assert len(text.encode()) < 2e6
    assert "more are in the JSON of the run" in text


def test_tokens_and_names_in_any_script_reach_the_page_without_a_warning() -> None:
    drawn = {"prompt": "'日本'(5) 'ह'(6) '😀'(7) '\ud83d'(8) '\uffff'(9) '\x00'(10)"}
    example = Counterexample(drawn)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text = page(one(name="順序 $x$ \x0b", counterexample=example))
    assert "日本" in text
    assert "😀" in text
    assert "\\ud83d" in text
    assert "\x00" not in text
    text.encode("utf-8")


# -- pictures -------------------------------------------------------------------------------


def test_the_dot_is_left_of_the_tick_if_and_only_if_it_is_within() -> None:
    def drawn(observed: float, bound: float) -> list[float]:
        result = one(observed=observed, bound=bound, margin=margin(observed, bound))
        svg = ElementTree.fromstring(pictures.margins([result], "float32", "p"))
        return [float(use.get("x") or 0) for use in svg.iter("use")]

    for observed, bound in ((1e-6, 1e-5), (0.0, 1e-5), (1e-300, 1e-5)):
        tick, dot = drawn(observed, bound)
        assert dot < tick
    for observed, bound in ((1e-4, 1e-5), (math.nan, 1e-5), (1e-9, 0.0), (1e300, 1e-5)):
        tick, dot = drawn(observed, bound)
        assert dot > tick
    assert drawn(0.0, 0.0)[0] == drawn(0.0, 0.0)[1]


def test_only_what_fits_a_log_scale_is_drawn() -> None:
    fit = one()
    unfit = [one(bound=bound) for bound in (None, -1.0, math.nan)]
    unfit += [one(margin=None), one(margin=math.nan), one(observed=-0.1)]
    unfit.append(one(verdict=Verdict.NOT_APPLICABLE))
    assert pictures.drawable([fit, *unfit]) == [fit]
    assert "7 that a log scale cannot show" not in page(fit, *unfit)
    assert "6 that a log scale cannot show" in page(fit, *unfit)


def test_of_many_claims_those_with_the_least_margin_are_drawn() -> None:
    rows = [one(id=f"C{i}", margin=float(i % 10)) for i in range(100)]
    drawn = pictures.tightest(rows, 20)
    assert {row.margin for row in drawn} == {0.0, 1.0}
    assert [row.id for row in drawn] == sorted((r.id for r in drawn), key=lambda i: int(i[1:]))


def test_the_picture_takes_its_colours_from_the_page() -> None:
    svg = pictures.margins(sample()[:7], "bfloat16", "p")
    assert {"var(--refuted)", "var(--tint)"} <= set(re.findall(r"var\(--\w+\)", svg))
    assert not re.search(r"#[0-9a-f]{6}\b|DejaVu|http", svg)
    assert "Shaded: below one rounding of float32." in page(*sample())
