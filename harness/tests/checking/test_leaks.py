"""How small a leak each law sees, counted over results."""

from __future__ import annotations

import math

import pytest
from rich.console import Console

from assay.harness.checking.leaks import by_law
from assay.harness.cli.alarms import show_leaks
from assay.harness.results.verdicts import BOUND, LEAK, LEAK_GOAL, SEES_ONE, Kind, Result, Verdict

FLOAT64 = "the float64 reference"


def result(size, name="a law [eager]", id="C2", subject="tiny:gpt2:1", verdict=Verdict.UPHELD):
    details = {LEAK: size, LEAK_GOAL: 1e-5, BOUND: FLOAT64}
    return Result(id, name, Kind.LAW, subject, verdict, details=details)


def test_variants_and_models_of_one_law_count_together():
    rows = [
        result(1e-6),
        result(3e-6, "a law [sdpa]"),
        result(5e-6, subject="tiny:bert:1"),
        result(1e-3, "another law"),
    ]
    leaks = by_law({"float32": rows})
    leak = leaks["C2", "a law"]["float32"]
    assert (leak.typical, leak.worst, leak.models, leak.blunt) == (3e-6, 5e-6, 2, 0)
    assert leak.bound == FLOAT64
    assert leaks["C2", "another law"]["float32"].blunt == 1


def test_a_variant_that_need_not_see_what_others_must_is_listed_by_itself():
    wide = result(0.3, "a law [quantised]")
    del wide.details[LEAK_GOAL]
    leaks = by_law({"float32": [result(1e-6), wide]})
    assert leaks["C2", "a law"]["float32"].worst == 1e-6
    assert (leaks["C2", "a law [quantised]"]["float32"].worst) == 0.3
    assert leaks["C2", "a law [quantised]"]["float32"].blunt == 0
    console = Console(width=200, record=True)
    show_leaks(console, {"float32": [wide]})
    assert "C2 a law [quantised]" in console.export_text()


def test_what_was_never_seen_is_infinite_and_blunt():
    rows = [result(None, verdict=Verdict.INCONCLUSIVE)]
    leak = by_law({"float32": rows})["C2", "a law"]["float32"]
    assert (leak.worst, leak.blunt) == (math.inf, 1)


def test_laws_that_broke_or_look_for_no_leak_are_left_out_and_others_in_order():
    plain = Result("D2", "exact", Kind.LAW, "m", Verdict.UPHELD)
    rows = [result(1e-6, id="C10"), result(1e-6), plain, result(1, verdict=Verdict.REFUTED)]
    leaks = by_law({"float32": rows})
    assert [law[0] for law in leaks] == ["C2", "C10"]
    assert leaks["C2", "a law"]["float32"].worst == pytest.approx(1e-6)


def counted(count, verdict=Verdict.UPHELD):
    one = {"what": "token that is not recovered", "injected": 4, "seen": count}
    return Result("D2", "exact", Kind.LAW, "m", verdict, details={SEES_ONE: one})


def test_a_law_that_counts_is_listed_with_what_one_error_is():
    leaks = by_law({"float32": [counted(4), counted(3, Verdict.INCONCLUSIVE)]})["D2", "exact"]
    assert (leaks["float32"].one, leaks["float32"].blunt) == ("token that is not recovered", 1)
    console = Console(width=200, record=True)
    show_leaks(console, {"float32": [counted(4)]})
    assert "one token that is not recovered |" in console.export_text()


def test_the_table_has_a_column_for_each_dtype():
    console = Console(width=200, record=True)
    show_leaks(console, {"float32": [result(1e-6)], "bfloat16": [result(1e-2)]})
    text = console.export_text()
    assert "float32: typical / worst" in text
    assert "1e-6 / 1e-6" in text
    assert "0.01 / 0.01 (1 too blunt)" in text
