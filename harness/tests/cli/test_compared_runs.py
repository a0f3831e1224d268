"""`assay compare`: how a run is named, and how many runs are compared as one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from assay.harness.comparison import sides
from assay.harness.results.evidence import Evidence
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.compared import kept, on
from assay.harness.tests.support.comparing import LAWS, compare, printed

HOSTILE = "<script>alert('x')</script> [bold]& \x1b[31m\u202e"


@pytest.fixture
def several(tmp_path: Path) -> Path:
    """Runs from the oldest: one without an end, two of which the older ended last, one without."""
    path = tmp_path / "several.sqlite"
    for number, (id, end) in enumerate([("aaaa", 0), ("bbbb1", 1), ("bbbb2", 1), ("cccc", 0)]):
        when = f"2026-01-0{number + 1}T00:00:00+00:00"
        kept(path, LAWS, id * 4, bool(end), started=when)
    with Evidence.open(path) as store:
        end = "UPDATE runs SET run = json_set(run, '$.finished', ?) WHERE id LIKE ?"
        store._db.execute(end, ("2026-01-09", "bbbb1%"))
        store._db.execute(end, ("2026-01-08", "bbbb2%"))
    return path


@pytest.mark.parametrize(
    ("which", "run_id"),
    [
        ("", "bbbb1"),
        ("@1", "aaaa"),
        ("@-1", "cccc"),
        ("@bbbb2", "bbbb2"),
    ],
)
def test_a_run_is_named_by_number_or_id_or_is_the_latest_that_ended(several, which, run_id):
    (side,) = sides.read(f"{several}{which}")
    assert side.run.id.startswith(run_id)
    assert side.others == (0 if which else 1)


@pytest.mark.parametrize(
    ("which", "words"),
    [
        ("@0", "there are 4 runs"),
        ("@-5", "there are 4 runs"),
        ("@bbbb", "2 runs have an id that begins so"),
        ("@dddd", "no run has an id that begins so"),
    ],
)
def test_a_run_that_is_not_there_is_refused(several, which, words, capsys):
    assert compare(f"{several}{which}", several) == 4
    error = capsys.readouterr().err
    assert words in error
    assert f"`assay runs {several}` lists them" in error
    assert error.count("\n") == 1


def test_two_runs_of_one_file_are_compared(several, capsys):
    assert compare(f"{several}@bbbb2", f"{several}@1") == 0
    assert ".sqlite@1 did not finish" in printed(capsys)


def test_a_file_without_a_run_that_ended_is_refused(tmp_path, capsys):
    path = kept(tmp_path / "e", LAWS, end=False)
    assert compare(path, path) == 4
    assert "no run in it finished; name one as" in capsys.readouterr().err
    assert compare(f"{path}@all", path) == 4
    assert "no run in it finished" in capsys.readouterr().err
    assert compare(f"{path}@1", f"{path}@1") == 0


def test_files_without_anything_to_compare_are_refused(tmp_path, before, capsys):
    empty = tmp_path / "empty"
    empty.touch()
    without = kept(tmp_path / "without", [])
    assert compare(before, empty) == 4
    assert "is empty" in capsys.readouterr().err
    assert compare(before, without) == 4
    assert "the run has no results" in capsys.readouterr().err
    assert empty.stat().st_size == 0


def swept(path: Path, *cells: tuple[str, str], broken: tuple[str, ...] = ()) -> Path:
    """What a sweep leaves: a run for each model and dtype, with a law ``broken`` in some."""
    for number, (model, dtype) in enumerate(cells):
        laws = on(model, LAWS)
        if f"{model} {dtype}" in broken:
            laws[0] = replace(laws[0], verdict=Verdict.REFUTED, margin=-2.0, sample={})
        kept(path, laws, str(number) * 32, dtype=dtype)
    return path


CELLS = [(model, dtype) for model in ("tiny:a", "tiny:b") for dtype in ("float32", "bfloat16")]


def test_all_runs_of_two_sweeps_are_compared_like_with_like(tmp_path, capsys):
    before = swept(tmp_path / "before", *CELLS)
    after = swept(tmp_path / "after", *reversed(CELLS), broken=("tiny:a bfloat16",))
    # The latest run of each says nothing of the others, and says so.
    assert compare(before, before) == 0
    assert f"{before} holds 3 other finished runs, left out; {before}@all takes all" in printed(
        capsys
    )
    assert compare(f"{before}@all", f"{after}@all", "--json") == 1
    diff = json.loads(capsys.readouterr().out)
    assert diff["compared"] == 4 * len(LAWS)
    assert [each["subject"] for each in diff["flips"]] == ["tiny:a · bfloat16"]
    assert (diff["before"]["runs"], diff["before"]["dtype"], diff["changed"]) == (4, None, {})
    assert compare(f"{before}@all", f"{after}@all") == 1
    said = printed(capsys)
    assert "before@all: 4 runs" in said
    assert "1 regression, no drift in 24 claims" in said


def test_one_run_is_compared_with_the_one_of_its_settings_among_many(tmp_path, capsys):
    many = swept(tmp_path / "many", *CELLS)
    assert compare(kept(tmp_path / "one", on("tiny:b", LAWS)), f"{many}@all", "--json") == 0
    diff = json.loads(capsys.readouterr().out)
    assert (diff["compared"], diff["new_subjects"]) == (
        *(len(LAWS),),
        ["tiny:a · float32", "tiny:a · bfloat16", "tiny:b · bfloat16"],
    )


def test_names_are_shown_as_they_are_and_do_nothing(tmp_path, capsys):
    hostile = [replace(each, name=HOSTILE, subject=HOSTILE, reason=HOSTILE) for each in LAWS[:1]]
    broken = [replace(each, verdict=Verdict.REFUTED) for each in hostile]
    more = on(HOSTILE, LAWS[1:3])
    files = (kept(tmp_path / "a", hostile + more), kept(tmp_path / "b", broken))
    assert compare(*files) == 1
    shown = capsys.readouterr().out
    assert "\x1b[31m" not in shown
    assert "\u202e" not in shown
    assert "[bold]&" in shown
