"""The evidence store: what goes in comes out."""

from __future__ import annotations

import sqlite3

import pytest

from assay.harness.results.evidence import Evidence
from assay.harness.results.verdicts import Kind, Result, Verdict
from assay.harness.tests.support.evidence_files import (
    BROKEN,
    DIGEST,
    UPHELD,
    a_run,
    rows,
)

# What goes in comes out.


def test_results_come_back_as_they_were_recorded(store, path):
    for result in (UPHELD, BROKEN):
        store.record("r1", result, DIGEST)
    with Evidence.open(path) as again:
        assert again.results("r1") == [UPHELD, BROKEN]
        assert again.recorded("r1") == {
            (UPHELD.name, "tiny:gpt2", DIGEST): UPHELD,
            (BROKEN.name, "tiny:gpt2", DIGEST): BROKEN,
        }


def test_the_same_claim_recorded_again_replaces_the_first(store):
    store.record("r1", UPHELD, DIGEST)
    again = Result("C1", UPHELD.name, Kind.LAW, "tiny:gpt2", Verdict.REFUTED, 1.0, 1e-5, -5.0)
    store.record("r1", again, DIGEST)
    assert store.results("r1") == [again]


def test_runs_come_oldest_first_with_their_end(store):
    store.begin(a_run("r0", "2025-01-01T00:00:00+00:00"))
    store.finish("r0", 1)
    first, second = store.runs()
    assert (first.id, first.exit, first.finished[:2]) == ("r0", 1, "20")
    assert second == a_run()


def test_nothing_is_recorded_of_a_run_that_did_not_begin(store, path):
    with pytest.raises(sqlite3.IntegrityError):
        store.record("r2", UPHELD, DIGEST)
    with pytest.raises(KeyError):
        store.finish("r2", 0)
    assert rows(path, "SELECT count(*) FROM claims") == [(0,)]


def test_a_mistake_of_ours_is_not_called_bad_input(store):
    store.close()
    with pytest.raises(sqlite3.ProgrammingError):
        store.runs()
