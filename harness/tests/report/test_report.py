"""The table, the live line and the page say what the results say, whatever is in them."""

from __future__ import annotations

import io
import math
import os
import re
import warnings
from collections import Counter
from contextlib import suppress
from xml.etree import ElementTree

import pytest
from msgspec.structs import asdict, replace
from rich.console import Console

from assay.harness.report import pictures, texts, words
from assay.harness.report.html import render
from assay.harness.report.progress import Progress
from assay.harness.report.terminal import print_table
from assay.harness.results.records import SubjectRecord
from assay.harness.results.verdicts import Counterexample, Result, Verdict, margin
from assay.harness.tests.support.pages import HOSTILE, Reader, html_of, page, printed
from assay.harness.tests.support.sample_findings import finding
from assay.harness.tests.support.sample_runs import (
    COUNTEREXAMPLE,
    LARGE,
    LAWS,
    NO_DISTANCE,
    one,
    sample,
    sample_run,
)

# -- words ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text", "raised"),
    [
        (None, "–", "–"), (math.nan, "NaN", "NaN"), (-math.inf, "-∞", "-∞"), (0.0, "0", "0"),
        (0.071, "0.071", "0.071"), (2.14e-6, "2.1e-6", "2.1×10⁻⁶"), (1e-12, "1e-12", "10⁻¹²"),
    ],
)  # fmt: skip
def test_a_number_is_short_and_says_what_it_is(
    value: float | None, text: str, raised: str
) -> None:
    assert (texts.number(value), texts.power(value)) == (text, raised)


def _all(result: Result, **counts: int) -> list[Result]:
    return [replace(result, verdict=Verdict[name]) for name, n in counts.items() for _ in range(n)]


@pytest.mark.parametrize(
    ("results", "sentence"),
    [
        ([], "No claim was checked."),
        (_all(one(), NOT_APPLICABLE=2), f"No law applies to {LARGE}."),
        (_all(one(), REFUTED=1), f"The one law that applies to {LARGE} is broken."),
        (_all(one(), UPHELD=3, NOT_APPLICABLE=1), f"All 3 laws that apply hold on {LARGE}."),
        (
            _all(one(), UPHELD=3, REFUTED=2, INCONCLUSIVE=1),
            f"3 of 6 laws that apply hold on {LARGE}; 2 are broken and 1 is not decided.",
        ),
        (
            [*_all(one(), UPHELD=2), one(subject="tiny:llama")],
            "2 of 3 checks of laws hold on 2 subjects; 1 is broken.",
        ),
        ([*_all(one(), NOT_APPLICABLE=1), finding()], f"No law applies to {LARGE}."),
        (_all(finding(), UPHELD=1), f"The one finding that applies to {LARGE} is upheld."),
        (
            _all(finding(), UPHELD=1, REFUTED=2, INCONCLUSIVE=1),
            f"1 of 4 findings that apply is upheld on {LARGE};"
            " 2 are refuted and 1 is not decided.",
        ),
    ],
)
def test_the_headline_counts_laws_or_without_them_findings(
    results: list[Result], sentence: str
) -> None:
    assert words.headline(results) == sentence


@pytest.mark.parametrize(
    ("counts", "sentence"),
    [
        ({"NOT_APPLICABLE": 2}, ""),
        ({"REFUTED": 1}, "The one finding is refuted."),
        (
            {"UPHELD": 1, "REFUTED": 1, "INCONCLUSIVE": 2, "NOT_APPLICABLE": 1},
            "Of 4 findings, 1 is upheld, 1 is refuted and 2 are inconclusive.",
        ),
    ],
)
def test_beside_laws_one_sentence_counts_the_findings(
    counts: dict[str, int], sentence: str
) -> None:
    findings = _all(finding(), **counts)
    assert words.of_findings([*sample(broken=False)[: len(LAWS)], *findings]) == sentence
    assert words.of_findings(findings) == ""


def test_claims_come_in_the_catalogues_order() -> None:
    groups = words.by_subject(sample_run(), sample()[::-1])
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
    assert sum("✓ upheld" in line for line in lines) == len(LAWS)
    summary = " ".join(lines[-1].split())
    assert summary == "✓ 10 upheld ✗ 1 refuted ? 1 inconclusive – 2 not applicable"
    assert any("2.3e-5" in line for line in lines)
    assert COUNTEREXAMPLE.replay in lines, "the replay command is alone on one unbroken line"


def test_a_pipe_gets_no_colours_and_a_terminal_does() -> None:
    assert "\x1b" not in printed(*sample())
    assert "\x1b[32m" in printed(*sample(), tty=True)


def test_a_counterexample_shows_tokens_ids_and_both_numbers() -> None:
    text = printed(one())
    for wanted in ("' value'(1988)", "appended", "at position 2", "0.0314", "1.9e-5"):
        assert wanted in text


def test_claims_that_do_not_apply_are_listed_where_they_are_explained() -> None:
    brief, whole = printed(*sample()), printed(*sample(), explain=True)
    assert "2 claims do not apply:" not in brief
    assert "2 claims do not apply:" in whole
    assert "E21" not in brief
    assert "E21" in whole


@pytest.mark.parametrize("verdict", [Verdict.REFUTED, Verdict.NOT_APPLICABLE])
def test_an_unexpected_verdict_stands_with_its_claim(verdict: Verdict) -> None:
    row = one(verdict=verdict)
    judgements = {(row.name, LARGE): "unexpected", (row.name, "other"): "wrong"}
    text = printed(row, judgements=judgements)
    assert "→ unexpected" in text
    assert "wrong" not in text
    assert "does not apply" not in text


def test_fields_of_config_json_that_a_model_does_not_honour_stand_below_its_name() -> None:
    lines = [f"config.json says field_{i} 8; the model has none" for i in range(7)]
    subject = SubjectRecord(not_honoured=lines)
    first = [*lines[:5], "and 2 more fields (--explain names them)"]
    assert words.not_honoured(subject) == first
    assert words.not_honoured(subject, all_of_them=True) == lines
    run = replace(sample_run("x"), subjects={"x": subject})
    file = io.StringIO()
    print_table(Console(file=file, width=80), run, [one(subject="x")])
    shown = file.getvalue().splitlines()
    at = shown.index("x")
    assert [line.rstrip() for line in shown[at + 1 : at + 7]] == first
    assert lines[6] in render(run, [one(subject="x")])


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


# -- the live line --------------------------------------------------------------------------


def test_off_a_terminal_what_is_not_upheld_has_a_line_and_every_twentieth_claim() -> None:
    console = Console(file=io.StringIO(), width=80)
    progress = Progress()
    progress.start(30, console)
    progress.begin("C1", LARGE)
    for result in (one(), *[finding()] * 24, sample()[-1]):
        progress.update(result)
    progress.stop()
    progress.stop()
    progress.update(one())
    assert console.file.getvalue().splitlines() == [  # type: ignore[attr-defined]
        f"[ 1/30] C1 on reference:large, refuted, margin -3.2, {texts.duration(one().seconds)}",
        "[20/30] A1 on reference:large, upheld, 0.071 [0.058, 0.089], 6.2 s",
    ]


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
        progress.stop()
    text = _drained(reader).decode()
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    for words_shown in ("C2 on reference:large", "1/3", "✗ 1"):
        assert words_shown in plain
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1  # the cursor is back


def _drained(reader: int) -> bytes:
    """All that was written to a terminal whose other end is closed: one read gives a part."""
    parts = []
    with os.fdopen(reader, "rb", buffering=0) as stream, suppress(OSError):  # Linux ends in EIO
        while part := stream.read(1 << 16):
            parts.append(part)
    return b"".join(parts)


# -- the page -------------------------------------------------------------------------------


def test_nothing_that_comes_from_a_run_becomes_markup() -> None:
    made = Counterexample({HOSTILE: HOSTILE}, where=HOSTILE, replay=HOSTILE)
    bad = one(id=HOSTILE, name=HOSTILE, subject=HOSTILE, reason=HOSTILE, counterexample=made)
    absent = replace(bad, verdict=Verdict.NOT_APPLICABLE, counterexample=None)
    details = finding().details
    findings = [
        finding(details=dict.fromkeys(details, HOSTILE) | more | {HOSTILE: HOSTILE})
        for more in ({"recorded": {HOSTILE: 1.0}}, {"recorded": HOSTILE})
    ]
    fields = [name for name, each in asdict(sample_run()).items() if isinstance(each, str)]
    run = replace(
        *(sample_run(),),
        **dict.fromkeys(fields, HOSTILE),
        versions={HOSTILE: HOSTILE},
        subjects={HOSTILE: SubjectRecord(missing={HOSTILE: HOSTILE}, not_honoured=[HOSTILE])},
    )
    text = render(run, [bad, absent, one(), *findings], {(HOSTILE, HOSTILE): HOSTILE})
    Reader(text).is_harmless()
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
    reader = Reader(render(sample_run("one", "two"), [*sample("one"), *sample("two")]))
    ids = Counter(reader.values("id"))
    assert max(ids.values()) == 1
    assert {link[1:] for link in reader.values("href") if link.startswith("#")} <= set(ids)
    assert set(reader.values("aria-labelledby")) <= set(ids)


def test_the_page_can_be_heard() -> None:
    reader = Reader(page(*sample()))
    assert reader.all("html")[0]["lang"] == "en"
    assert len(reader.all("h1")) == 1
    assert all(head.get("scope") in ("col", "row") for head in reader.all("th"))
    shown = [a["aria-label"] or "" for _, a in reader.elements if a.get("role") == "img"]
    assert "1 beyond what is allowed" in shown[0]


def test_the_page_holds_every_result_and_says_why_claims_do_not_apply() -> None:
    undecided = next(r.name for r in sample() if r.id == "C7")
    text = page(*sample(), judgements={(undecided, LARGE): "expected: small model"})
    rows = re.findall(r'<tr role="row" id="c\d+" class="(\w+)"', text)
    assert Counter(rows) == {"upheld": len(LAWS), "refuted": 1, "inconclusive": 1, "absent": 2}
    assert f"9 of 10 laws that apply hold on {LARGE}; 1 is broken." in text
    # In the table, for both in their own section, and in the first lines.
    assert text.count(NO_DISTANCE) == 2 + 1 + 1
    assert "expected: small model" in text
    assert sample_run().subjects[LARGE].digest in text
    assert html_of(COUNTEREXAMPLE.replay) in text


def test_a_run_with_enormous_counterexamples_stays_under_two_megabytes() -> None:
    drawn = {str(i): "'ö'(7)" * 20_000 for i in range(50)}
    example = Counterexample(drawn, replay="x" * 100_000)
    rows = [one(id=f"C{i}", name="n" * 5000, counterexample=example) for i in range(400)]
    text = page(*rows)
    assert len(text.encode()) < 2e6
    assert "more are in the JSON of the run" in text


def test_tokens_and_names_in_any_script_reach_the_page_without_a_warning() -> None:
    drawn = {"prompt": "'日本'(5) 'ह'(6) '😀'(7) '\ud83d'(8) '\uffff'(9) '\x00'(10)"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text = page(one(name="順序 $x$ \x0b", counterexample=Counterexample(drawn)))
    for shown in ("日本", "😀", "\\ud83d"):
        assert shown in text
    assert "\x00" not in text
    text.encode("utf-8")


# -- the picture of margins -------------------------------------------------------------------


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


def test_only_what_fits_a_log_scale_is_drawn_and_the_tightest_of_many() -> None:
    unfit = [one(bound=bound) for bound in (None, -1.0, math.nan)]
    unfit += [one(margin=None), one(margin=math.nan), one(observed=-0.1)]
    others = [one(verdict=Verdict.NOT_APPLICABLE), finding()]
    assert pictures.drawable([one(), *unfit, *others]) == [one()]
    assert "6 that a log scale cannot show" in page(one(), *unfit, *others)
    assert 'id="margins"' not in page(finding())
    rows = [one(id=f"C{i}", margin=float(i % 10)) for i in range(100)]
    drawn = pictures.tightest(rows, 20)
    assert {row.margin for row in drawn} == {0.0, 1.0}
    assert [row.id for row in drawn] == sorted((r.id for r in drawn), key=lambda i: int(i[1:]))
