"""Evidence of processes that are killed, or that write at once: nothing is lost or doubled."""

from __future__ import annotations

import pytest

from assay.harness.results.evidence import Evidence
from assay.harness.tests.support.evidence_files import (
    child,
)

pytestmark = pytest.mark.nightly


def test_four_processes_that_write_at_once_lose_nothing_and_write_nothing_twice(path):
    """They also make the file together: none is there when they start."""
    code = """if True:
        mine = sys.argv[2]
        store = Evidence.open(sys.argv[1], timeout=60)
        for run in ("shared", mine):
            store.begin(a_run(run))
        for number in range(12):
            store.record("shared", replace(UPHELD, name=f"{mine} {number}"), "a" * 64)
            store.record("shared", replace(UPHELD, name=f"all {number}"), "a" * 64)
            store.record(mine, replace(UPHELD, name=str(number)), "a" * 64)
        store.finish(mine, 0)
    """
    processes = [child(code, path, f"p{n}") for n in range(4)]
    for process in processes:
        assert process.communicate(timeout=120) == ("", "")
    with Evidence.open(path) as store:
        shared = [result.name for result in store.results("shared")]
        assert sorted(shared) == sorted(
            f"{who} {n}" for who in ("p0", "p1", "p2", "p3", "all") for n in range(12)
        )
        for n in range(4):
            assert [r.name for r in store.results(f"p{n}")] == [str(i) for i in range(12)]
        assert {run.id: run.exit for run in store.runs()} == {
            **{f"p{n}": 0 for n in range(4)},
            "shared": None,
        }
