"""The evidence file: what goes in comes out, whatever happens to the process or the disk."""

from __future__ import annotations

import errno
import math
import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from assay.harness.results import evidence_file
from assay.harness.results.errors import BadInput
from assay.harness.results.evidence import Evidence, resume_key
from assay.harness.results.evidence_file import default_path
from assay.harness.results.verdicts import Kind, Result, Verdict
from assay.harness.tests.support.evidence_files import (
    BROKEN,
    DIGEST,
    MISFITS,
    OTHER,
    UPHELD,
    a_run,
    child,
    refused,
    rows,
)

ROOT = Path(__file__).parents[3]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new folder" / "evidence.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[Evidence]:
    with Evidence.open(path, timeout=0.2) as store:
        store.begin(a_run())
        yield store


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


def test_numbers_that_are_not_finite_come_back_as_none(store):
    result = Result("D1", "d", Kind.FINDING, "s", Verdict.INCONCLUSIVE, math.nan, math.inf)
    store.record("r1", result, DIGEST)
    (back,) = store.results("r1")
    assert (back.observed, back.bound) == (None, None)


def test_a_row_can_be_read_without_its_json(store, path):
    store.record("r1", BROKEN, DIGEST)
    (row,) = rows(
        path,
        "SELECT run, claim, name, kind, subject, digest, dtype, device, verdict, observed, bound, "
        "margin, examples, seconds FROM claims",
    )
    assert row[:6] == ("r1", "C2", BROKEN.name, "law", "tiny:gpt2", DIGEST)
    assert row[6:] == ("float32", "cpu", "refuted", 0.5, 1e-5, -4.7, 7, 1.25)


def test_the_same_claim_recorded_again_replaces_the_first(store):
    store.record("r1", UPHELD, DIGEST)
    again = Result("C1", UPHELD.name, Kind.LAW, "tiny:gpt2", Verdict.REFUTED, 1.0, 1e-5, -5.0)
    store.record("r1", again, DIGEST)
    assert store.results("r1") == [again]


def test_runs_come_oldest_first_with_their_end(store):
    store.begin(a_run("r0", "2025-01-01T00:00:00+00:00"))
    store.finish("r0", 1)
    first, second = store.runs()
    assert (first["id"], first["exit"], first["finished"][:2]) == ("r0", 1, "20")
    assert second == {**a_run(), "finished": None, "exit": None}


@pytest.mark.parametrize("method", ["results", "recorded"])
def test_a_run_that_is_not_there_is_not_an_empty_one(store, method):
    with pytest.raises(KeyError, match="r2"):
        getattr(store, method)("r2")


def test_nothing_is_recorded_of_a_run_that_did_not_begin(store, path):
    with pytest.raises(KeyError):
        store.record("r2", UPHELD, DIGEST)
    with pytest.raises(KeyError):
        store.finish("r2", 0)
    assert rows(path, "SELECT count(*) FROM claims") == [(0,)]


def test_a_mistake_of_ours_is_not_called_bad_input(store):
    store.close()
    with pytest.raises(sqlite3.ProgrammingError):
        store.runs()


# Resuming.


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


@pytest.mark.parametrize("name", ["suite", "dtype", "device", "attention", "profile", "seed"])
def test_a_run_with_another_setting_is_not_resumed(store, name):
    assert store.unfinished(resume_key(a_run(**{name: "another"}))) is None


@pytest.mark.parametrize(("name", "value"), [("rounding", 0), ("allocation", "odd")])
def test_a_run_on_another_emulated_machine_is_not_resumed(store, name, value):
    assert store.unfinished(resume_key(a_run(**{name: None}))) == "r1"
    assert store.unfinished(resume_key(a_run(**{name: value}))) is None
    store.begin(a_run("r2", **{name: value}))
    assert store.unfinished(resume_key(a_run(**{name: value}))) == "r2"
    assert store.unfinished(resume_key(a_run())) == "r1"


@pytest.mark.parametrize("name", ["python", "torch", "transformers"])
def test_a_run_with_another_version_is_not_resumed(store, name):
    versions = {**a_run()["versions"], name: "0"}
    assert store.unfinished(resume_key(a_run(versions=versions))) is None


def test_neither_subjects_nor_start_nor_order_of_keys_keep_a_run_from_being_resumed(store):
    run = a_run("r9", "2026-09-09T00:00:00+00:00", subjects={})
    assert store.unfinished(resume_key(dict(reversed(run.items())))) == "r1"


def test_a_resumed_run_goes_on_under_its_id_and_keeps_its_start_and_claims(store):
    store.record("r1", UPHELD, DIGEST)
    more = {"tiny:bert": {"digest": OTHER}}
    store.begin(a_run("r1", "2026-05-05T00:00:00+00:00", subjects=more))
    (run,) = store.runs()
    assert run["started"] == a_run()["started"]
    assert run["subjects"] == a_run()["subjects"] | more
    assert store.results("r1") == [UPHELD]


def test_claims_about_weights_that_have_changed_since_are_not_kept_in_a_resumed_run(store):
    elsewhere = Result("C1", UPHELD.name, Kind.LAW, "tiny:bert", Verdict.UPHELD)
    store.record("r1", UPHELD, DIGEST)
    store.record("r1", elsewhere, DIGEST)
    store.begin(a_run(subjects={"tiny:gpt2": {"digest": OTHER}}))
    assert store.results("r1") == [elsewhere]


# Where the file is.


def test_the_default_file_is_in_the_cache_folder(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert default_path() == Path("/somewhere/assay/evidence.sqlite")


@pytest.mark.parametrize("cache", ["", "relative/folder"])
def test_without_a_usable_cache_variable_it_is_in_the_home_folder(monkeypatch, cache):
    monkeypatch.setenv("XDG_CACHE_HOME", cache)
    monkeypatch.setenv("HOME", "/home/of-someone")
    assert default_path() == Path("/home/of-someone/.cache/assay/evidence.sqlite")


def test_without_a_home_folder_the_user_is_asked_for_a_path(monkeypatch):
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(BadInput, match="--evidence=PATH"):
        default_path()


def test_no_path_opens_the_default_file(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with Evidence.open() as store:
        assert store.path == tmp_path / "assay" / "evidence.sqlite"
    assert store.path.is_file()


def test_a_name_that_sqlite_knows_is_a_file_like_any_other(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    Evidence.open(":memory:").close()
    assert Path(tmp_path, ":memory:").is_file()


@pytest.mark.parametrize("kind", MISFITS)
def test_what_is_no_evidence_file_is_refused_and_left_alone(tmp_path, kind):
    path = tmp_path / "e.sqlite"
    make, words = MISFITS[kind]
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(BadInput) as error:
        Evidence.open(path)
    assert refused(error, path, words)
    assert (path.read_bytes() if path.is_file() else None) == before


def test_an_empty_file_becomes_an_evidence_file(tmp_path):
    path = tmp_path / "e.sqlite"
    path.touch()
    with Evidence.open(path) as store:
        assert store.runs() == []


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "e.sqlite", tmp_path / "file" / "deeper" / "e.sqlite"):
        with pytest.raises(BadInput) as error:
            Evidence.open(path)
        assert refused(error, path, "its folder cannot be used")


# Schemas.


def test_an_older_file_is_migrated_and_keeps_its_rows(store, path, monkeypatch):
    store.record("r1", UPHELD, DIGEST)
    later = (*evidence_file.MIGRATIONS, "CREATE TABLE samples (run TEXT); CREATE TABLE more (x);")
    monkeypatch.setattr(evidence_file, "MIGRATIONS", later)
    with Evidence.open(path) as migrated:
        assert migrated.results("r1") == [UPHELD]
    assert rows(path, "PRAGMA user_version") == [(2,)]
    assert rows(path, "SELECT count(*) FROM samples") == [(0,)]


def test_a_migration_that_fails_half_way_leaves_the_file_as_it_was(store, path, monkeypatch):
    later = (*evidence_file.MIGRATIONS, "CREATE TABLE samples (run TEXT); CREATE TABLE runs (x);")
    monkeypatch.setattr(evidence_file, "MIGRATIONS", later)
    with pytest.raises(sqlite3.OperationalError, match="runs already exists"):
        Evidence.open(path)
    assert rows(path, "PRAGMA user_version") == [(1,)]
    assert rows(path, "SELECT count(*) FROM sqlite_master WHERE name = 'samples'") == [(0,)]


# Locks, permissions, full disks.


def test_a_locked_file_is_waited_for_and_then_refused_with_one_line(store, path):
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        for attempt in (
            lambda: Evidence.open(path, timeout=0.1),
            lambda: store.record("r1", UPHELD, DIGEST),
            lambda: store.finish("r1", 0),
            store.runs,
        ):
            with pytest.raises(BadInput) as error:
                attempt()
            assert refused(error, path, "locked by another process")
        other.execute("ROLLBACK")
    store.record("r1", UPHELD, DIGEST)
    assert store.results("r1") == [UPHELD]


def test_a_file_that_another_process_reads_can_be_written_soon_after(path, store):
    """A reader holds up the commit, not only the begin; nothing of the claim stays behind."""
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM runs").fetchall()
        with pytest.raises(BadInput, match="locked"):
            store.record("r1", UPHELD, DIGEST)
        assert store.results("r1") == []
        reader.execute("COMMIT")
    store.record("r1", UPHELD, DIGEST)
    assert store.results("r1") == [UPHELD]


def test_a_claim_waits_for_the_claim_of_another_process(path, store):
    """Two that both read and then want to write would be in each other's way for ever."""
    begun = threading.Event()

    def write_slowly() -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            other.execute("UPDATE runs SET exit = 3")
            begun.set()
            time.sleep(0.3)
            other.execute("COMMIT")

    thread = threading.Thread(target=write_slowly)
    thread.start()
    begun.wait()
    with Evidence.open(path) as patient:
        patient.record("r1", UPHELD, DIGEST)
    thread.join()
    assert store.results("r1") == [UPHELD]
    assert store.runs()[0]["exit"] == 3


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """A folder, as someone whom permissions hold back: root would write anywhere."""
    root = os.geteuid() == 0
    folder = Path(tempfile.mkdtemp())
    if root:
        os.chown(folder, 65534, 65534)
        os.seteuid(65534)
    yield folder
    if root:
        os.seteuid(0)
    folder.chmod(0o700)
    shutil.rmtree(folder)


def test_a_folder_that_cannot_be_written_is_refused(unprivileged):
    unprivileged.chmod(0o500)
    for path in (unprivileged / "e.sqlite", unprivileged / "deeper" / "e.sqlite"):
        with pytest.raises(BadInput) as error:
            Evidence.open(path)
        assert refused(error, path, "cannot be")


def test_a_read_only_file_can_be_read_and_not_written(unprivileged):
    path = unprivileged / "e.sqlite"
    with Evidence.open(path) as store:
        store.begin(a_run())
    path.chmod(0o400)
    with Evidence.open(path) as store:
        assert len(store.runs()) == 1
        with pytest.raises(BadInput) as error:
            store.begin(a_run("r2"))
        assert refused(error, path, "cannot be written")


def test_a_file_that_cannot_be_read_is_refused(unprivileged):
    path = unprivileged / "e.sqlite"
    Evidence.open(path).close()
    path.chmod(0o000)
    with pytest.raises(BadInput) as error:
        Evidence.open(path)
    assert refused(error, path, "cannot be written")


def test_a_full_disk_loses_the_claim_at_hand_and_no_other(store, path):
    store.record("r1", UPHELD, DIGEST)
    (pages,) = rows(path, "PRAGMA page_count")[0]
    store._db.execute(f"PRAGMA max_page_count = {pages}")
    big = Result("C9", "big", Kind.LAW, "s", Verdict.UPHELD, details={"text": "x" * 100_000})
    with pytest.raises(BadInput) as error:
        store.record("r1", big, DIGEST)
    assert refused(error, path, "disk is full")
    store.record("r1", BROKEN, DIGEST)
    assert store.results("r1") == [UPHELD, BROKEN]


def test_a_file_that_may_not_grow_loses_the_claim_at_hand_and_no_other(path):
    """The operating system's own refusal, in a process that may write files of 128 KiB."""
    code = """if True:
        import resource
        from assay.harness.results.errors import BadInput
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**17, 2**17))
        store = Evidence.open(sys.argv[1])
        store.begin(a_run())
        try:
            for number in range(1000):
                filled = replace(UPHELD, name=str(number), details={"text": "x" * 5000})
                store.record("r1", filled, "a" * 64)
        except BadInput as error:
            print(number, error, sep="\\n")
    """
    output, errors = child(code, path).communicate(timeout=60)
    number, message = output.splitlines()
    assert (str(path) in message, "is the disk full" in message, errors) == (True, True, "")
    with Evidence.open(path) as store:
        names = [result.name for result in store.results("r1")]
    assert names == [str(n) for n in range(int(number))] != []
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]


def test_a_disk_too_full_for_the_folder_is_bad_input(path, monkeypatch):
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(BadInput) as error:
        Evidence.open(path)
    assert refused(error, path, "No space left on device")


# Processes that are killed, or many.


@pytest.mark.parametrize("claims", [1, 10, 60])
def test_a_killed_run_loses_at_most_the_claim_in_flight(path, claims):
    code = """if True:
        store = Evidence.open(sys.argv[1])
        store.begin(a_run())
        for number in range(100_000):
            store.record("r1", replace(UPHELD, name=str(number)), "a" * 64)
            print(number, flush=True)
    """
    process = child(code, path)
    for _ in range(claims):
        process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    # Not by communicate(): lines that readline() has read ahead would be lost to it.
    said = claims + len(process.stdout.read().split())
    process.wait(60)
    with Evidence.open(path) as store:
        names = [result.name for result in store.results("r1")]
        assert store.unfinished(resume_key(a_run())) == "r1"
    assert process.returncode == -signal.SIGKILL
    assert names in ([str(n) for n in range(said)], [str(n) for n in range(said + 1)])
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]


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
    process.communicate(timeout=60)
    journal = path.with_name(path.name + "-journal")
    assert journal.stat().st_size > 0  # or nothing would be under way
    with Evidence.open(path) as store:
        assert store.results("r1") == [UPHELD]
        assert store.runs()[0]["subjects"] == a_run()["subjects"]
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
        assert {run["id"]: run["exit"] for run in store.runs()} == {
            **{f"p{n}": 0 for n in range(4)},
            "shared": None,
        }


def test_an_empty_file_is_none_to_read_and_one_to_write(tmp_path):
    path = tmp_path / "new.sqlite"
    path.touch()
    with pytest.raises(BadInput, match="is empty"):
        Evidence.read(path)
    Evidence.open(path).close()
    with Evidence.read(path) as evidence:
        assert evidence.runs() == []
