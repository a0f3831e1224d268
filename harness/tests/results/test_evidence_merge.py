"""Evidence of several files in one, and files that are only read."""

from __future__ import annotations

import itertools
import os
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from assay.harness.cli.main import main
from assay.harness.results.errors import BadInput
from assay.harness.results.evidence import Evidence
from assay.harness.tests.support.evidence_files import (
    BROKEN,
    DIGEST,
    OTHER,
    UPHELD,
    a_run,
    child,
    made,
    rows,
)


def content(path: Path) -> list[list[tuple]]:
    """Everything in a file, in no order."""
    return [sorted(rows(path, f"SELECT * FROM {name}"), key=repr) for name in ("runs", "claims")]


# Merging.


def test_two_copies_of_one_run_become_the_one_that_went_on(tmp_path):
    """A copy was taken while the run was going; whichever comes first, nothing of it is lost."""
    whole = made(tmp_path / "whole", "r1", claims=2, end=False)
    half = Path(shutil.copy(whole, tmp_path / "half"))
    with Evidence.open(half) as store:
        store.record("r1", replace(UPHELD, name="only here"), DIGEST)
    with Evidence.open(whole) as store:
        store.record("r1", replace(BROKEN, name="r1 1", id="C1"), DIGEST)  # recorded again
        store.record("r1", BROKEN, DIGEST)
        store.finish("r1", 1)
    merged = []
    for i, order in enumerate(itertools.permutations([whole, half])):
        out = tmp_path / f"out{i}"
        assert main(["merge", str(out), *map(str, order)]) == 0
        merged.append(content(out))
        with Evidence.read(out) as store:
            (run,) = store.runs()
            assert run.exit == 1
            verdicts = {result.name: result.verdict.value for result in store.results("r1")}
    assert merged[0] == merged[1]
    assert verdicts == {
        "r1 0": "upheld",
        "r1 1": "refuted",
        "only here": "upheld",
        BROKEN.name: "refuted",
    }


def test_claims_about_weights_that_a_later_copy_replaced_do_not_come_back(tmp_path):
    old = made(tmp_path / "old", "r1", end=False)
    new = Path(shutil.copy(old, tmp_path / "new"))
    with Evidence.open(new) as store:
        store.begin(a_run("r1", subjects={"tiny:gpt2": {"digest": OTHER}}))
        store.record("r1", UPHELD, OTHER)
    for order in itertools.permutations([old, new]):
        out = tmp_path / "out"
        out.unlink(missing_ok=True)
        assert main(["merge", str(out), *map(str, order)]) == 0
        with Evidence.read(out) as store:
            assert store.results("r1") == [UPHELD]
            assert store.runs()[0].subjects["tiny:gpt2"].digest == OTHER


def test_the_command_says_what_is_there_and_what_is_new(tmp_path, capsys):
    one, two = made(tmp_path / "1", "r1"), made(tmp_path / "2", "r1", "r2")
    assert main(["merge", str(tmp_path / "out"), str(one)]) == 0
    assert main(["merge", str(tmp_path / "out"), str(two)]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith("out: 1 run, 3 claims (1 run and 3 claims new)")
    assert second.endswith("out: 2 runs, 6 claims (1 run and 3 claims new)")


def test_a_bad_file_among_several_leaves_the_target_as_it_was(tmp_path, capsys):
    out, good = made(tmp_path / "out", "r1"), made(tmp_path / "good", "r2")
    bad = tmp_path / "bad"
    bad.write_text("no evidence")
    before = out.read_bytes()
    assert main(["merge", str(out), str(good), str(bad)]) == 4
    assert main(["merge", str(out), str(good), str(tmp_path / "nowhere")]) == 4
    first, second = capsys.readouterr().err.splitlines()
    assert f"{bad}: not an SQLite file" in first
    assert "nowhere: no such file" in second
    assert out.read_bytes() == before


# Only reading.


def fingerprint(path: Path) -> tuple[bytes, int, set[str]]:
    return path.read_bytes(), path.stat().st_mtime_ns, {p.name for p in path.parent.iterdir()}


def test_a_file_that_is_read_stays_as_it_is(tmp_path):
    path = made(tmp_path / "e.sqlite", "r1")
    before = fingerprint(path)
    with Evidence.read(path) as store:
        assert len(store.results("r1")) == 3
        with pytest.raises(BadInput, match="cannot be written"):
            store.begin(a_run("r2"))
    assert fingerprint(path) == before


def test_a_file_whose_writer_was_killed_in_a_write_is_read_as_it_was_before(tmp_path):
    path = made(tmp_path / "e.sqlite", "r1")
    code = """if True:
        import os, signal
        store = Evidence.open(sys.argv[1])
        store._db.execute("PRAGMA cache_size = 1")
        store._db.execute("BEGIN IMMEDIATE")
        store._db.execute("UPDATE claims SET result = 'half'")
        store._db.execute("CREATE TABLE half AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL "
                          "SELECT i + 1 FROM n WHERE i < 20000) SELECT i FROM n")
        os.kill(os.getpid(), signal.SIGKILL)
    """
    assert child(code, path).wait(timeout=300) == -9
    before = fingerprint(path)
    assert len(before[2]) == 2  # the journal
    with Evidence.read(path) as store:
        assert [result.name for result in store.results("r1")] == ["r1 0", "r1 1", "r1 2"]
    assert fingerprint(path) == before


def test_a_name_with_signs_that_mean_something_in_an_address_is_a_name(tmp_path):
    path = made(tmp_path / "a?mode=rw#50%25.sqlite", "r1")
    with Evidence.read(path) as store:
        assert len(store.runs()) == 1
    assert os.listdir(tmp_path) == [path.name]


# Listing.


def test_runs_are_listed_as_they_are_addressed(tmp_path, capsys):
    path = made(tmp_path / "e.sqlite", "aaaaaaaaaaaa1", "bbbbbbbbbbbb2")
    with Evidence.open(path) as store:
        store.begin(a_run("cccccccccccc3", "2026-03-01T00:00:00+00:00", profile="thorough"))
    before = fingerprint(path)
    assert main(["runs", str(path)]) == 0
    shown = capsys.readouterr().out.splitlines()
    lines = [line.split() for line in shown if line.strip()[:1].isdigit()]
    assert [line[0] for line in lines] == ["1", "2", "3"]
    assert [line[1] for line in lines] == ["aaaaaaaa", "bbbbbbbb", "cccccccc"]
    assert "unfinished" in " ".join(lines[2])
    assert "thorough" in " ".join(lines[2])
    assert fingerprint(path) == before
