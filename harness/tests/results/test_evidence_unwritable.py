"""Evidence on full disks, under locks, and without permission: one line, and no claim lost."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from assay.harness.results.errors import BadInput
from assay.harness.results.evidence import Evidence
from assay.harness.results.verdicts import Kind, Result, Verdict
from assay.harness.tests.support.evidence_files import (
    BROKEN,
    DIGEST,
    UPHELD,
    a_run,
    refused,
    rows,
)


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
            other.execute("UPDATE runs SET run = json_set(run, '$.exit', 3)")
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
    assert store.runs()[0].exit == 3


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
