"""Evidence of processes that are killed, or that write at once: nothing is lost or doubled."""

from __future__ import annotations

import subprocess

import pytest

from assay.harness.results.evidence import Evidence
from assay.harness.tests.support.evidence_files import (
    UPHELD,
    a_run,
    child,
    rows,
)

pytestmark = pytest.mark.nightly


def test_a_run_killed_in_the_middle_of_a_write_is_rolled_back(path):
    code = """if True:
        store = Evidence.open(sys.argv[1])
        store.begin(a_run())
        store.record("r1", UPHELD, "a" * 64)
        store._db.execute("PRAGMA cache_size = 1")  # pages reach the file before the commit
        with store._transaction() as db:
            db.execute("UPDATE runs SET run = 'half'")
            db.execute("CREATE TABLE half AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL "
                       "SELECT i + 1 FROM n WHERE i < 20000) SELECT i FROM n")
            print("now", flush=True)
            sys.stdin.read()
    """
    process = child(code, path, stdin=subprocess.PIPE)
    assert process.stdout.readline() == "now\n"
    process.kill()
    process.communicate(timeout=300)
    journal = path.with_name(path.name + "-journal")
    assert journal.stat().st_size > 0  # or nothing would be under way
    with Evidence.open(path) as store:
        assert store.results("r1") == [UPHELD]
        assert store.runs()[0].subjects == a_run().subjects
    assert rows(path, "SELECT count(*) FROM sqlite_master WHERE name = 'half'") == [(0,)]
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]


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
