"""`assay compare` on runs of claims: how they are named, shown, and refused."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from assay.harness.cli.main import main
from assay.harness.comparison import sides
from assay.harness.comparison.document import SCHEMA
from assay.harness.results import evidence_file, schema
from assay.harness.results.errors import BadInput
from assay.harness.results.evidence import Evidence
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.compared import MODEL, a_finding, a_law, kept, on
from assay.harness.tests.support.evidence_files import MISFITS, a_run
from assay.harness.tests.support.sessions import ROOT, Project, law

LAWS = [a_law(number) for number in range(6)]
HOSTILE = "<script>alert('x')</script> [bold]& \x1b[31m\u202e"


@pytest.fixture
def one(tmp_path: Path) -> Path:
    return kept(tmp_path / "one.sqlite", [*LAWS, a_finding(1)])


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """Law 0 is broken, law 1 not decided, law 2 has drifted, law 3 is gone, finding 2 is new."""
    results = [
        replace(LAWS[0], verdict=Verdict.REFUTED, margin=-2.0, sample={}, reason="it broke"),
        replace(LAWS[1], verdict=Verdict.INCONCLUSIVE),
        a_law(2, moved=-0.6),
        *LAWS[4:],
        *(a_finding(1), a_finding(2)),
    ]
    return kept(tmp_path / "other.sqlite", results, dtype="bfloat16")


def run(*arguments: object) -> int:
    return main(["compare", *map(str, arguments)])


def told(capsys) -> str:
    return " ".join(capsys.readouterr().out.split())


# What is said.


def test_what_became_of_the_claims_is_shown(one, other, capsys):
    assert run(one, other) == 1
    shown = told(capsys)
    assert "dtype: float32 → bfloat16" in shown
    assert "regression upheld refuted" in shown
    assert "lost upheld inconclusive" in shown
    assert "gone: 1 claim: C3 (law 3) on tiny:gpt2" in shown
    assert "new: 1 claim: D2 (finding 2) on tiny:gpt2" in shown
    assert "1 regression, 1 lost, 1 drift in 6 claims" in shown
    drifted = re.search(r"C2 .*?(-0\.\d+) (-0\.\d+) to (-0\.\d+)", shown)
    low, high = float(drifted[2]), float(drifted[3])
    assert low < -0.6 < high < 0


def test_identical_runs_are_clean(one, tmp_path, capsys):
    copy = kept(tmp_path / "copy.sqlite", [*LAWS, a_finding(1)])
    assert run(one, copy) == 0
    assert "no regression, no drift in 7 claims" in told(capsys)


def test_a_regression_the_other_way_round_is_a_gain(one, other, capsys):
    assert run(other, one) == 0
    assert "no regression, 2 gained, 1 drift in 6 claims" in told(capsys)


def test_the_json_is_as_its_schema_has_it(one, other, capsys):
    assert run(one, other, "--json") == 1
    document = json.loads(capsys.readouterr().out)
    Draft202012Validator.check_schema(SCHEMA)
    Draft202012Validator(SCHEMA).validate(document)
    assert [(each["id"], each["flip"]) for each in document["flips"]] == [
        ("C0", "regression"),
        ("C1", "lost"),
    ]
    (drift,) = document["drifts"]
    assert (drift["id"], drift["shift"]["drift"], drift["shift"]["draws"]) == ("C2", True, 12)
    assert document["gone"] == [{"id": "C3", "name": "law 3", "subject": MODEL}]
    assert document["changed"] == {"dtype": ["float32", "bfloat16"]}
    assert (document["regressions"], document["judged"]) == (1, 5)


def test_how_far_a_drift_must_be_can_be_said(one, other, capsys):
    assert run(one, other, "--least", "0.9") == 1
    shown = told(capsys)
    assert "1 more really moved, but by less than 0.9" in shown
    assert "no drift" in shown


class Page(HTMLParser):
    """What is in a page: tags, text, and attributes that could load something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags, self.loads, self.text, self.open = [], [], "", []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag not in ("meta", "link"):
            self.open.append(tag)
        self.loads += [v for k, v in attributes if k in ("src", "href") and v[:1] != "#"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_the_page_says_the_same_and_needs_nothing_else(one, other, tmp_path, capsys):
    path = tmp_path / "new folder" / "page.html"
    assert run(one, other, "--html", path) == 1
    page = Page(path.read_text(encoding="utf-8"))
    assert page.open == []
    assert set(page.loads) == {"data:,"}
    assert "script" not in page.tags
    for words in ("1 regression, 1 lost, 1 drift in 6 claims", "it broke", "bfloat16", "law 2"):
        assert words in page.text
    assert "url(" not in path.read_text()


def test_the_page_of_clean_runs_says_so(one, tmp_path):
    path = tmp_path / "page.html"
    assert run(one, one, "--html", path, "--json") == 0
    assert "no regression, no drift in 7 claims" in Page(path.read_text()).text


def test_names_are_shown_as_they_are_and_do_nothing(tmp_path, capsys):
    hostile = [replace(each, name=HOSTILE, subject=HOSTILE, reason=HOSTILE) for each in LAWS[:1]]
    broken = [replace(each, verdict=Verdict.REFUTED) for each in hostile]
    more = on(HOSTILE, LAWS[1:3])
    path = tmp_path / "page.html"
    files = (kept(tmp_path / "a", hostile + more), kept(tmp_path / "b", broken))
    assert run(*files, "--html", path) == 1
    shown = capsys.readouterr().out
    assert "\x1b[31m" not in shown
    assert "\u202e" not in shown
    assert "[bold]&" in shown
    page = Page(path.read_text())
    assert "script" not in page.tags
    assert "alert" in page.text


# How a run is named.


@pytest.fixture
def several(tmp_path: Path) -> Path:
    """Runs from the oldest: one without an end, two of which the older ended last, one without."""
    path = tmp_path / "several.sqlite"
    for number, (id, end) in enumerate([("aaaa", 0), ("bbbb1", 1), ("bbbb2", 1), ("cccc", 0)]):
        when = f"2026-01-0{number + 1}T00:00:00+00:00"
        kept(path, LAWS, id * 4, bool(end), started=when)
    with Evidence.open(path) as store:
        store._db.execute("UPDATE runs SET finished = '2026-01-09' WHERE id LIKE 'bbbb1%'")
        store._db.execute("UPDATE runs SET finished = '2026-01-08' WHERE id LIKE 'bbbb2%'")
    return path


@pytest.mark.parametrize(
    ("which", "found"),
    [
        ("", "bbbb1"),
        ("@1", "aaaa"),
        ("@4", "cccc"),
        ("@-1", "cccc"),
        ("@-4", "aaaa"),
        ("@bbbb2", "bbbb2"),
        ("@cccc", "cccc"),
    ],
)
def test_a_run_is_named_by_number_or_id_or_is_the_latest_that_ended(several, which, found):
    assert sides.holds_claims(f"{several}{which}")
    (side,) = sides.read(f"{several}{which}")
    assert side.run["id"].startswith(found)
    assert side.others == (0 if which else 1)


@pytest.mark.parametrize(
    ("which", "words"),
    [
        ("@0", "there are 4 runs"),
        ("@5", "there are 4 runs"),
        ("@-5", "there are 4 runs"),
        ("@bbbb", "2 runs have an id that begins so"),
        ("@dddd", "no run has an id that begins so"),
        ("@ccc", "no run has an id that begins so"),
        ("@", "no run has an id that begins so"),
    ],
)
def test_a_run_that_is_not_there_is_refused(several, which, words, capsys):
    assert run(f"{several}{which}", several) == 4
    error = capsys.readouterr().err
    assert words in error
    assert f"`assay runs {several}` lists them" in error
    assert error.count("\n") == 1


def test_two_runs_of_one_file_are_compared(several, capsys):
    assert run(f"{several}@bbbb2", f"{several}@1") == 0
    assert ".sqlite@1 did not come to its end" in told(capsys)


def test_a_file_whose_name_has_the_sign_is_a_file(tmp_path):
    path = kept(tmp_path / "a@2", LAWS)
    assert [len(side.rows) for side in sides.read(str(path))] == [6]
    assert [len(side.rows) for side in sides.read(f"{path}@1")] == [6]


def test_a_file_without_a_run_that_ended_is_refused(tmp_path, capsys):
    path = kept(tmp_path / "e", LAWS, end=False)
    assert run(path, path) == 4
    assert "none of its runs came to its end; name one as" in capsys.readouterr().err
    assert run(f"{path}@1", f"{path}@1") == 0


def test_files_without_anything_to_compare_are_refused(tmp_path, one, capsys):
    empty = tmp_path / "empty"
    empty.touch()
    without = kept(tmp_path / "without", [])
    assert run(one, empty) == 4
    assert "is empty" in capsys.readouterr().err
    assert run(one, without) == 4
    assert "the run has no results" in capsys.readouterr().err
    assert empty.stat().st_size == 0


# Reports.


def test_a_report_is_a_run_without_samples(one, other, tmp_path, capsys):
    paths = []
    for path in (one, other):
        with Evidence.read(path) as store:
            (told_of,) = store.runs()
            paths.append(tmp_path / f"{path.stem}.json")
            schema.write_json(paths[-1], told_of, store.results(told_of["id"]))
    assert run(*paths, "--json") == 1
    found = json.loads(capsys.readouterr().out)
    Draft202012Validator(SCHEMA).validate(found)
    assert [each["id"] for each in found["flips"]] == ["C0", "C1"]
    assert [each["id"] for each in found["unjudged"]] == ["C2"]
    assert found["judged"] == 0
    assert run(one, paths[1]) == 1
    assert "1 number moved and cannot be judged, as no sample was kept: C2" in told(capsys)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"claims": 5}', "is no report of a run"),
        ('{"schema": 1, "claims": [{}], "run": {"subjects": {}}}', "is no report of a run"),
        ('{"schema": 1, "claims": [], "run": {"subjects": 3}}', "is no report of a run"),
        (
            '{"schema": 1, "run": {"subjects": {}}, "claims": [{"id": "C1", "name": "c", '
            '"subject": "s", "kind": "law", "verdict": "maybe", "margin": 1, "observed": 1}]}',
            "is no report of a run",
        ),
        ('{"schema": 99, "claims": [], "run": {}}', "has schema 99, this version knows 1"),
        ('{"claims": ', "is not JSON"),
        ("[" * 3000, "is not JSON"),
        ("[]", "is no result of benchmarks"),
    ],
)
def test_a_report_that_is_none_is_refused(tmp_path, text, words, capsys):
    path = tmp_path / "r.json"
    path.write_text(text)
    assert run(path, path) == 4
    assert words in capsys.readouterr().err


def test_a_report_whose_entries_are_of_other_types_is_refused(one, tmp_path, capsys):
    with Evidence.read(one) as store:
        (told_of,) = store.runs()
        written = schema.document(told_of, store.results(told_of["id"]))
    path = tmp_path / "r.json"
    changes = [
        lambda found: found["claims"][0].update(margin="1"),
        lambda found: found["claims"][1].update(observed=[1]),
        lambda found: found["claims"][2].update(details=None),
        lambda found: found["claims"][3].update(name=["a"]),
        lambda found: found["claims"].append("law"),
        lambda found: found["run"].update(versions=["torch"]),
        lambda found: found["run"].update(started=5),
        lambda found: found["run"].update(subjects={"tiny:llama": []}),
        lambda found: found["claims"][0]["details"].update(gap=math.inf),
        lambda found: found.update(run=["a"]),
    ]
    for change in changes:
        found = json.loads(json.dumps(written))
        change(found)
        path.write_text(json.dumps(found))
        assert run(one, path) == 4
        assert (
            capsys.readouterr().err
            == f"error: {path}: is no report of a run (write one by --json)\n"
        )
    path.write_text(json.dumps(written))
    assert run(f"{path}@1", one) == 4
    assert "so no evidence with runs to choose" in capsys.readouterr().err


# Many runs as one.


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
    assert run(before, before) == 0
    assert f"{before} holds 3 other finished runs, left out; {before}@all takes all" in told(
        capsys
    )
    assert run(f"{before}@all", f"{after}@all", "--json") == 1
    found = json.loads(capsys.readouterr().out)
    Draft202012Validator(SCHEMA).validate(found)
    assert found["compared"] == 4 * len(LAWS)
    assert [each["subject"] for each in found["flips"]] == ["tiny:a · bfloat16"]
    assert (found["before"]["runs"], found["before"]["dtype"], found["changed"]) == (4, None, {})
    assert run(f"{before}@all", f"{after}@all") == 1
    said = told(capsys)
    assert "before@all: 4 runs" in said
    assert "1 regression, no drift in 24 claims" in said


def test_one_run_is_held_against_its_like_among_many(tmp_path, capsys):
    many = swept(tmp_path / "many", *CELLS)
    assert run(kept(tmp_path / "one", on("tiny:b", LAWS)), f"{many}@all", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["compared"], found["new_subjects"]) == (
        *(len(LAWS),),
        ["tiny:a · float32", "tiny:a · bfloat16", "tiny:b · bfloat16"],
    )


def test_of_a_claim_in_many_runs_the_one_that_ended_last_counts(tmp_path, capsys):
    path = kept(tmp_path / "e", LAWS, "1" * 32)
    broken = [replace(LAWS[0], verdict=Verdict.REFUTED, margin=-2.0, sample={})]
    kept(path, broken, "2" * 32)
    assert run(f"{path}@1", f"{path}@all", "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["compared"], found["gone"], found["regressions"]) == (len(LAWS), [], 1)
    versions = a_run()["versions"] | {"transformers": "5.18.0"}
    kept(path, LAWS, "3" * 32, versions=versions, seed=1)
    assert run(f"{path}@all", f"{path}@all", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["compared"] == 2 * len(LAWS)
    assert run(f"{path}@3", f"{path}@all", "--json") == 0
    assert json.loads(capsys.readouterr().out)["compared"] == len(LAWS)


def test_many_runs_of_which_none_ended_are_refused(tmp_path, capsys):
    path = kept(tmp_path / "e", LAWS, end=False)
    assert run(f"{path}@all", path) == 4
    assert "none of its runs came to its end" in capsys.readouterr().err


# What is refused.


def test_files_of_two_kinds_are_refused(tmp_path, one, capsys):
    timings = tmp_path / "t.json"
    timings.write_text(json.dumps({"benchmarks": []}))
    assert run(one, timings) == 4
    error = capsys.readouterr().err
    assert f"{one} is a run of claims, {timings} is a run of benchmarks" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("options", [["--share", "0.2"], ["--other-machine"]])
def test_options_of_benchmarks_are_refused_for_claims(one, options, capsys):
    assert run(one, one, *options) == 4
    assert f"{options[0]}: is not for a run of claims" in capsys.readouterr().err


@pytest.mark.parametrize("options", [["--html", "x"], ["--any-seed"], ["--least", "0"]])
def test_options_of_claims_are_refused_for_benchmarks(tmp_path, options, capsys):
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"benchmarks": []}))
    assert run(path, path, *options) == 4
    assert f"{options[0]}: is not for a run of benchmarks" in capsys.readouterr().err


def test_a_folder_in_place_of_a_page_is_refused(tmp_path, one, capsys):
    assert run(one, one, "--html", tmp_path) == 4
    error = capsys.readouterr().err
    assert f"--html: '{tmp_path}' is a folder; give a file's path" in error
    assert error.count("\n") == 1


def test_another_seed_is_refused_in_one_line_and_can_be_asked_for(tmp_path, one, capsys):
    seeded = kept(tmp_path / "seeded", LAWS, seed=3)
    assert run(one, seeded) == 4
    error = capsys.readouterr().err
    assert "have seed 0 and 3; compare them with --any-seed" in error
    assert error.count("\n") == 1
    assert run(one, seeded, "--any-seed") == 0


@pytest.mark.parametrize("which", ["", "@1"])
@pytest.mark.parametrize("kind", [*MISFITS, "missing"])
def test_a_file_that_is_no_run_is_refused_and_left_alone(tmp_path, one, kind, which, capsys):
    path = tmp_path / "misfit"
    make, words = MISFITS.get(kind, (lambda path: None, "no such file"))
    make(path)
    before = path.read_bytes() if path.is_file() else None
    assert run(one, f"{path}{which}") == 4
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert str(path) in error
    assert words in error or "is not JSON, and no evidence either" in error
    assert (path.read_bytes() if path.is_file() else None) == before
    assert path.exists() == (kind != "missing")


def test_a_newer_file_is_refused_by_name_and_an_older_one_is_read(one, tmp_path, monkeypatch):
    later = (*evidence_file.MIGRATIONS, "CREATE TABLE more (x)")
    monkeypatch.setattr(evidence_file, "MIGRATIONS", later)
    newer, before = kept(tmp_path / "newer", LAWS), one.read_bytes()
    assert run(newer, one) == 0
    assert one.read_bytes() == before
    monkeypatch.undo()
    with pytest.raises(BadInput, match="newer: has schema 2, this version knows 1"):
        sides.read(str(newer))


# Many, and real ones.


def test_runs_of_many_models_are_compared(tmp_path, capsys):
    files = []
    for number, name in enumerate("ab"):
        laws = [a_law(n, seed=number) for n in range(170)]
        laws += [a_finding(n, ["mean", "median", "share"][n % 3], seed=number) for n in range(30)]
        path = kept(tmp_path / name, [])
        with Evidence.open(path) as store:
            models = [f"tiny:{n}" for n in range(10)]
            store.begin(a_run("1" * 32, subjects={m: {"digest": "a" * 64} for m in models}))
            store._db.execute("BEGIN")
            rows = [
                {**row, "subject": model}
                for row in [x.as_json() for x in laws]
                for model in models
            ]
            columns = "run, claim, name, kind, subject, digest, dtype, device, verdict, "
            columns += "examples, seconds, recorded, result"
            store._db.executemany(
                f"INSERT INTO claims ({columns}) VALUES ('{'1' * 32}', :id, :name, :kind, "
                f":subject, '{'a' * 64}', 'float32', 'cpu', :verdict, 1, 1, '2026', :result)",
                [{**row, "result": json.dumps(row)} for row in rows],
            )
            store._db.execute("COMMIT")
            store.finish("1" * 32, 0)
        files.append(path)
    assert run(*files) == 0
    assert "in 2000 claims" in told(capsys)


def test_a_law_that_broke_between_two_runs_is_found(project: Project, capsys):
    """Two runs of one seed are clean; then the model's own law is broken by hand."""
    drawn = 'draw(st.floats(0.1, 0.5), "share")'
    project.claims(law(1, "share", body=f"share = {drawn}"), law(2))
    for name in "ab":
        assert project.run(f"--evidence={project.folder / name}").exit == 0
    project.claims(law(1, "share", body=f"share = 0.3 * {drawn}"), law(2, "5.0"))
    assert project.run(f"--evidence={project.folder / 'c'}").exit == 1
    a, b, c = (project.folder / name for name in "abc")
    assert run(a, b) == 0
    assert "no regression, no drift in 2 claims" in told(capsys)
    assert run(b, c, "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert [(each["id"], each["flip"]) for each in found["flips"]] == [("X2", "regression")]
    (drift,) = found["drifts"]
    assert drift["id"] == "X1"
    assert drift["shift"]["shift"] == pytest.approx(0.523, abs=1e-3)  # log10(1 / 0.3)


def test_comparing_does_not_wait_for_torch(one, other):
    code = "import sys; from assay.harness.cli.main import main; main(sys.argv[1:]); "
    code += "sys.exit(3 * ('torch' in sys.modules))"
    command = [sys.executable, "-c", code, "compare", one, other]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, timeout=60).returncode == 0
