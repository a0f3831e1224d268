"""Verdicts are recorded in a file of expectations, which keeps what people wrote there."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.harness.results.errors import BadInput
from assay.harness.results.expectation_files import emit, load, record
from assay.harness.results.expectations import Expected, judge
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.expected import (
    C8,
    LAW,
    MODEL,
    NOT,
    OPEN,
    REFUTED,
    UPHELD,
    claims_in,
    entry,
    result,
    write,
)


def test_every_verdict_of_the_subject_is_written_in_order_and_waits_for_its_reasons(tmp_path):
    results = [
        result("C10"),
        result("C8", REFUTED),
        result("C2", OPEN),
        result("B1", REFUTED, LAW),
    ]
    results += [result("C9", NOT, reason="no cache"), result("C1", REFUTED, subject="another")]
    path = record(tmp_path / "new", "m", results)
    rows = claims_in(path.read_text())
    assert [row["id"] for row in rows] == ["B1", "C2", "C8", "C9", "C10"]
    assert [row.get("reason") for row in rows] == ["", "", "", "no cache", None]
    with pytest.raises(BadInput, match=r"claim 1 \('B1'\): refuted needs a reason"):
        load(path.parent)
    path.write_text(path.read_text().replace('reason = ""', 'reason = "known"'))
    expectations = load(path.parent)["m"]
    assert [judge(r, expectations.expected(r.id, r.name)).status for r in results[:2]] == [
        "as expected",
        "as expected",
    ]


def test_a_file_of_another_dtype_is_not_recorded_over(tmp_path):
    path = record(tmp_path, "m", [result("C8", REFUTED)], "bfloat16")
    assert 'dtype = "bfloat16"' in path.read_text()
    with pytest.raises(BadInput, match="is of bfloat16; a run in float32 cannot"):
        record(tmp_path, "m", [result("C8", REFUTED)])


def test_a_reason_stays_as_long_as_the_verdict_does(tmp_path):
    write(tmp_path, MODEL + C8 + entry(id="C9", verdict="refuted", reason="gone"), "renamed.toml")
    path = record(tmp_path, "m", [result("C8", REFUTED), result("C9", OPEN)])
    rows = claims_in(path.read_text())
    assert [row["reason"] for row in rows] == ["because", ""]


def test_writing_the_same_results_again_changes_no_byte(tmp_path):
    results = [result("C8", REFUTED, name=name) for name in "ba"] + [result("C2", NOT, reason="x")]
    path = record(tmp_path, "m", results)
    before = path.read_bytes()
    assert record(tmp_path, "m", reversed(results)) == path
    assert path.read_bytes() == before


def test_a_file_is_named_after_its_model_and_never_takes_that_of_another(tmp_path):
    names = ["reference:large", "org/model", "org:model", "../../up", "é", "ORG-MODEL", "x" * 300]
    paths = [record(tmp_path, name, [result(subject=name)]) for name in names]
    assert [path.name for path in paths[:2]] == ["reference-large.toml", "org-model.toml"]
    assert {path.parent for path in paths} == {tmp_path}
    assert len({path.name.lower() for path in paths}) == len(names)
    assert set(load(tmp_path)) == set(names)
    assert [record(tmp_path, name, []) for name in names] == paths


def test_what_cannot_be_written_is_bad_input_and_left_as_it_is(tmp_path):
    path = write(tmp_path, "model = ")
    for folder, model, words in (
        (tmp_path, "m", "not TOML"),
        (path, "m", "its folder is a file"),
        (tmp_path / "new", "caf\udce9", "is not Unicode"),
    ):
        with pytest.raises(BadInput, match=words):
            record(folder, model, [result()])
    assert path.read_text() == "model = "


keys = st.tuples(st.text(min_size=1), st.none() | st.text())
texts = st.text() | st.text("\"\\\n\r\t\b\f\0\x1b\x7f\u0085\u2028\ufeff'#=[]{}é", max_size=9)


reasons = st.sampled_from(["", "one cause"]) | texts
said = st.builds(Expected, st.sampled_from(Verdict), reasons, st.just(""), st.booleans())


@settings(deadline=None)
@given(st.text(min_size=1), st.dictionaries(keys, said))
def test_what_is_written_is_read_back_by_another_reader(model, rows):
    text = emit(model, rows)
    assert tomllib.loads(text)["model"] == model
    assert {
        (row["id"], row.get("name")): Expected(
            Verdict(row["verdict"]), row.get("reason", ""), "", row.get("sometimes", False)
        )
        for row in claims_in(text)
    } == rows


def test_claims_of_one_cause_are_written_together_and_those_without_a_reason_apart():
    because = Expected(REFUTED, "because", "")
    rows = {
        **{("C8", "b"): because, ("C2", None): because, ("C8", "a"): because},
        **{("C9", name): Expected(REFUTED, "", "") for name in ("a", "b")},
        **{("C1", None): Expected(UPHELD, "", ""), ("C10", "a"): Expected(UPHELD, "", "")},
        ("C8", "c"): replace(because, sometimes=True),
        ("C:3", "an id that cannot stand in a list"): because,
    }
    entries = tomllib.loads(emit("m", rows))["claim"]
    assert [entry.get("claims", entry.get("id")) for entry in entries] == [
        ["C1", "C10: a"],
        ["C2", "C8: a", "C8: b"],
        *("C8", "C9", "C9", "C:3"),
    ]
