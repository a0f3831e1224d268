"""Which run is resumed, and what is kept of it."""

from __future__ import annotations

import pytest

from assay.harness.results.evidence import resume_key
from assay.harness.results.verdicts import Kind, Result, Verdict
from assay.harness.tests.support.evidence_files import (
    DIGEST,
    OTHER,
    UPHELD,
    a_run,
)


def test_the_latest_run_without_an_end_is_the_one_to_resume(store):
    key = resume_key(a_run())
    assert store.unfinished(key) == "r1"
    store.begin(a_run("r3", "2026-03-01T00:00:00+00:00"))
    store.begin(a_run("r2", "2026-02-01T00:00:00+00:00"))
    assert store.unfinished(key) == "r3"
    store.finish("r3", 0)
    assert store.unfinished(key) == "r2"
    store.finish("r2", 0)
    store.finish("r1", 0)
    assert store.unfinished(key) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, "another") for name in ("suite", "dtype", "device", "attention", "profile")),
        *(("seed", 1), ("bitwise", True), ("attends", "both"), ("rounding", 0)),
        ("allocation", "odd"),
    ],
)
def test_a_run_with_another_setting_is_not_resumed(store, name, value):
    assert store.unfinished(resume_key(a_run(**{name: value}))) is None
    store.begin(a_run("r2", **{name: value}))
    assert store.unfinished(resume_key(a_run(**{name: value}))) == "r2"
    assert store.unfinished(resume_key(a_run())) == "r1"


@pytest.mark.parametrize("name", ["python", "torch", "transformers"])
def test_a_run_with_another_version_is_not_resumed(store, name):
    versions = {**a_run().versions, name: "0"}
    assert store.unfinished(resume_key(a_run(versions=versions))) is None


def test_a_resumed_run_goes_on_under_its_id_and_keeps_its_start_and_claims(store):
    store.record("r1", UPHELD, DIGEST)
    more = {"tiny:bert": {"digest": OTHER}}
    store.begin(a_run("r1", "2026-05-05T00:00:00+00:00", subjects=more))
    (run,) = store.runs()
    assert run.started == a_run().started
    assert run.subjects == a_run().subjects | a_run(subjects=more).subjects
    assert store.results("r1") == [UPHELD]


def test_claims_about_weights_that_have_changed_since_are_not_kept_in_a_resumed_run(store):
    elsewhere = Result("C1", UPHELD.name, Kind.LAW, "tiny:bert", Verdict.UPHELD)
    store.record("r1", UPHELD, DIGEST)
    store.record("r1", elsewhere, DIGEST)
    store.begin(a_run(subjects={"tiny:gpt2": {"digest": OTHER}}))
    assert store.results("r1") == [elsewhere]
