"""Results are judged strictly both ways: by a model's own file, by patterns, seeds and dtypes."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from assay.harness.results.errors import BadInput
from assay.harness.results.expectation_files import load, record
from assay.harness.results.expectations import Expected, judge, judge_result
from assay.harness.results.verdicts import HIDDEN, UNAVAILABLE, Kind, Verdict
from assay.harness.tests.support.expected import (
    C8,
    FINDING,
    LAW,
    MODEL,
    NOT,
    OPEN,
    REFUTED,
    UPHELD,
    entry,
    result,
    write,
)

# Judging.


@pytest.mark.parametrize(
    ("kind", "verdict", "expected", "status"),
    [
        # No entry: upheld or not applicable.
        *[(kind, UPHELD, None, "as expected") for kind in Kind],
        *[(kind, NOT, None, "as expected") for kind in Kind],
        *[(kind, REFUTED, None, "unexpected") for kind in Kind],
        # An inconclusive law is never right, an inconclusive finding is undecided.
        *[(LAW, OPEN, expected, "unexpected") for expected in (None, *Verdict)],
        *[(FINDING, OPEN, expected, "inconclusive") for expected in (None, OPEN)],
        *[(FINDING, OPEN, expected, "unexpected") for expected in (UPHELD, REFUTED, NOT)],
        # An entry that matches, and every one that does not.
        *[(kind, v, v, "as expected") for kind in Kind for v in (UPHELD, REFUTED, NOT)],
        *[
            (kind, verdict, expected, "unexpected")
            for kind in Kind
            for verdict in (UPHELD, REFUTED, NOT)
            for expected in Verdict
            if expected is not verdict
        ],
    ],
)
def test_a_result_is_judged_strictly_both_ways(kind, verdict, expected, status):
    entry = None if expected is None else Expected(expected, "because", "m.toml, claim 1")
    judgement = judge(result(verdict=verdict, kind=kind), entry)
    assert (judgement.status, judgement.ok) == (status, status == "as expected")
    assert f"C8 (they agree) on m is {verdict}" in judgement.message
    assert entry is None or verdict is OPEN or entry.where in judgement.message


def test_a_judgement_gives_the_entry_s_place_and_its_reason():
    judgement = judge(result(), Expected(REFUTED, "because", "m.toml, claim 1 ('C8')"))
    assert judgement.message == (
        "C8 (they agree) on m is upheld, but m.toml, claim 1 ('C8') expects refuted, "
        "which no longer matches"
    )
    judgement = judge(result(verdict=REFUTED), Expected(REFUTED, "too small", "m.toml, claim 1"))
    assert judgement.message.endswith("as m.toml, claim 1 expects: too small")
    for verdict in (NOT, OPEN):
        assert judge(result(verdict=verdict, reason="no cache"), None).message.endswith("no cache")


@pytest.mark.parametrize("expected", [None, *Verdict])
def test_what_cannot_be_checked_here_contradicts_no_entry(expected):
    entry = None if expected is None else Expected(expected, "because", "m.toml, claim 1")
    here = replace(result(verdict=NOT, reason="x is not installed"), details={UNAVAILABLE: True})
    judgement = judge(here, entry)
    assert judgement.ok
    assert judgement.message.endswith("x is not installed")


PATTERN = """model = "tiny:*"\n""" + entry(id="C8", verdict="refuted", reason="untrained")
OWN = 'model = "tiny:opt"\n' + entry(id="C8", verdict="upheld")


@pytest.mark.parametrize(
    ("model", "verdict", "status"),
    [
        ("tiny:llama", REFUTED, "as expected"),
        ("tiny:llama", UPHELD, "unexpected"),
        ("tiny:llama", NOT, "as expected"),
        ("tiny:llama", OPEN, "inconclusive"),
        ("tiny:opt", UPHELD, "as expected"),  # its own file comes first
        ("tiny:opt", REFUTED, "unexpected"),
        ("reference", REFUTED, "unexpected"),  # does not fit
    ],
)
def test_a_pattern_holds_for_models_whose_own_files_say_nothing(tmp_path, model, verdict, status):
    write(tmp_path, PATTERN, "tiny.toml")
    write(tmp_path, OWN, "tiny-opt.toml")
    every = load(tmp_path)
    assert judge_result(every, result(verdict=verdict, subject=model), "float32").status == status


@pytest.mark.parametrize(
    ("model", "verdict", "status"),
    [
        ("tiny:mamba", REFUTED, "as expected"),
        ("tiny:mamba", UPHELD, "unexpected"),
        ("tiny:mamba:7", REFUTED, "as expected"),
        ("tiny:mamba:7", UPHELD, "as expected"),  # allowed, not demanded
        ("tiny:mamba:7", NOT, "as expected"),
        ("tiny:mamba:8", REFUTED, "unexpected"),  # it has a file of its own
        ("tiny:mamba2:7", REFUTED, "unexpected"),
        ("tiny:mamba:7+no-mask", REFUTED, "unexpected"),
    ],
)
def test_a_file_allows_its_verdicts_to_other_seeds_of_its_model(tmp_path, model, verdict, status):
    write(tmp_path, 'model = "tiny:mamba"\n' + C8, "tiny-mamba.toml")
    write(tmp_path, 'model = "tiny:mamba:8"\n', "tiny-mamba-8.toml")
    held = judge_result(load(tmp_path), result(verdict=verdict, subject=model), "float32")
    assert held.status == status


@pytest.mark.parametrize(
    ("dtype", "device", "verdict", "status"),
    [
        ("float32", "cpu", UPHELD, "unexpected"),
        ("float32", "cpu", REFUTED, "as expected"),
        ("bfloat16", "cpu", UPHELD, "as expected"),
        ("bfloat16", "cpu", REFUTED, "as expected"),
        ("float32", "cuda", UPHELD, "as expected"),
        ("float32", "cuda", REFUTED, "as expected"),
    ],
)
def test_a_file_demands_verdicts_in_its_own_dtype_on_a_processor_only(
    tmp_path, dtype, device, verdict, status
):
    write(tmp_path, MODEL + C8)
    assert judge_result(load(tmp_path), result(verdict=verdict), dtype, device).status == status


SCRIPT = '[[claim]]\nid = "C8"\nverdict = "refuted"\nreason = "off (docs/defects/off_by_one.py)"\n'


@pytest.mark.parametrize(
    ("model", "form", "verdict", "kind", "status"),
    [
        ("folder", "tiny:t5", REFUTED, LAW, "as expected"),
        ("folder", "tiny:t5", UPHELD, LAW, "as expected"),  # nothing is demanded of it
        ("folder", "tiny:t5", REFUTED, FINDING, "unexpected"),  # tiny models are untrained
        ("folder", "tiny:mt5", REFUTED, LAW, "unexpected"),
        ("folder", "", REFUTED, LAW, "unexpected"),
        ("own", "tiny:t5", REFUTED, LAW, "unexpected"),  # its own file says nothing of it
        ("folder+no-mask", "tiny:t5", REFUTED, LAW, "unexpected"),
    ],
)
def test_a_folder_shares_the_defects_of_its_type(tmp_path, model, form, verdict, kind, status):
    write(tmp_path, 'model = "tiny:t5"\n' + SCRIPT, "tiny-t5.toml")
    write(tmp_path, 'model = "own"\n', "own.toml")
    mine = result(verdict=verdict, subject=model, kind=kind)
    judgement = judge_result(load(tmp_path), mine, "float32", form=form)
    assert judgement.status == status
    if status == "as expected" and verdict is REFUTED:
        assert judgement.foreseen.defect == "off_by_one"
    if status == "unexpected":
        assert ("no expectation says so" in judgement.message) == (model == "own")


@pytest.mark.parametrize(
    ("more", "device", "status"),
    [
        ('versions = { torch = ">=1" }\n', "cpu", "as expected"),
        ('versions = { torch = "<1" }\n', "cpu", "unexpected"),
        ('versions = { torch = ">=1", no-such-package = ">=1" }\n', "cpu", "unexpected"),
        ('device = "cuda"\n', "cpu", "unexpected"),
        ('device = "cuda"\n', "cuda", "as expected"),
    ],
)
def test_an_entry_is_about_versions_and_a_device(tmp_path, more, device, status):
    write(tmp_path, MODEL + C8 + more)
    broken = result(verdict=REFUTED)
    assert judge_result(load(tmp_path), broken, "float32", device).status == status
    before = load(tmp_path)["m"].entries["C8", None]
    record(tmp_path, "m", [broken])
    after = load(tmp_path)["m"].entries["C8", None]
    assert (after.versions, after.device) == (before.versions, before.device)


def test_a_range_of_versions_that_cannot_be_read_is_named(tmp_path):
    write(tmp_path, MODEL + C8 + 'versions = { torch = "about 2" }\n')
    with pytest.raises(BadInput, match="torch 'about 2' is no range of versions"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("more", "status"), [("sometimes = true\n", "inconclusive"), ("", "unexpected")]
)
def test_a_finding_that_is_refuted_sometimes_may_be_left_open(tmp_path, more, status):
    write(tmp_path, MODEL + C8 + more)
    open_ = result(verdict=Verdict.INCONCLUSIVE)
    assert judge(open_, load(tmp_path)["m"].entries["C8", None]).status == status


@pytest.mark.parametrize(("kind", "status"), [(LAW, "as expected"), (FINDING, "unexpected")])
def test_a_law_that_is_broken_sometimes_may_be_upheld(tmp_path, kind, status):
    write(tmp_path, MODEL + C8 + "sometimes = true\n")
    every = load(tmp_path)
    assert judge_result(every, result(kind=kind), "float32").status == status
    assert judge_result(every, result(verdict=REFUTED, kind=kind), "float32").ok
    record(tmp_path, "m", [result(kind=LAW)])
    assert load(tmp_path)["m"].entries["C8", None].sometimes


@pytest.mark.parametrize(("hidden", "status"), [(True, "inconclusive"), (False, "unexpected")])
def test_a_law_that_rounding_hides_in_16_bits_fails_no_run(hidden, status):
    open_ = replace(result("F1", OPEN, LAW, reason="too blunt"), details={HIDDEN: hidden})
    assert judge(open_, None).status == status
    assert not judge(open_, None).ok
    assert judge(replace(open_, verdict=REFUTED), None).fails
