"""`assay compare` on runs of claims: what it prints and writes, on made-up runs and real ones."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from jsonschema import Draft202012Validator

from assay.harness.comparison.document import SCHEMA
from assay.harness.results import schema
from assay.harness.results.evidence import Evidence
from assay.harness.tests.support.compared import MODEL, a_finding, kept
from assay.harness.tests.support.comparing import LAWS, compare, printed
from assay.harness.tests.support.sessions import ROOT, Project, law

# What is said.


def test_what_became_of_the_claims_is_shown(before, after, capsys):
    assert compare(before, after) == 1
    shown = printed(capsys)
    assert "dtype: float32 → bfloat16" in shown
    assert "regression upheld refuted" in shown
    assert "lost upheld inconclusive" in shown
    assert "gone: 1 claim: C3 (law 3) on tiny:gpt2" in shown
    assert "new: 1 claim: D2 (finding 2) on tiny:gpt2" in shown
    assert "1 regression, 1 lost, 1 drift in 6 claims" in shown
    drifted = re.search(r"C2 .*?(-0\.\d+) (-0\.\d+) to (-0\.\d+)", shown)
    low, high = float(drifted[2]), float(drifted[3])
    assert low < -0.6 < high < 0


def test_identical_runs_are_clean(before, tmp_path, capsys):
    copy = kept(tmp_path / "copy.sqlite", [*LAWS, a_finding(1)])
    assert compare(before, copy) == 0
    assert "no regression, no drift in 7 claims" in printed(capsys)


def test_a_regression_the_other_way_round_is_a_gain(before, after, capsys):
    assert compare(after, before) == 0
    assert "no regression, 2 gained, 1 drift in 6 claims" in printed(capsys)


def test_the_json_is_as_its_schema_has_it(before, after, capsys):
    assert compare(before, after, "--json") == 1
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


def test_how_far_a_drift_must_be_can_be_said(before, after, capsys):
    assert compare(before, after, "--least", "0.9") == 1
    shown = printed(capsys)
    assert "1 more moved significantly, but by less than 0.9" in shown
    assert "no drift" in shown


# Reports.


def test_a_report_is_a_run_without_samples(before, after, tmp_path, capsys):
    paths = []
    for path in (before, after):
        with Evidence.read(path) as store:
            (run,) = store.runs()
            paths.append(tmp_path / f"{path.stem}.json")
            schema.write_json(paths[-1], run, store.results(run.id))
    assert compare(*paths, "--json") == 1
    diff = json.loads(capsys.readouterr().out)
    Draft202012Validator(SCHEMA).validate(diff)
    assert [each["id"] for each in diff["flips"]] == ["C0", "C1"]
    assert [each["id"] for each in diff["unjudged"]] == ["C2"]
    assert diff["judged"] == 0
    assert compare(before, paths[1]) == 1
    assert "1 number moved and cannot be judged, as no sample was kept: C2" in printed(capsys)


# Real ones.


def test_a_law_that_broke_between_two_runs_is_found(project: Project, capsys):
    """Two runs of one seed are clean; then the model's own law is broken by hand."""
    drawn = 'draw(st.floats(0.1, 0.5), "share")'
    project.claims(law(1, "share", body=f"share = {drawn}"), law(2))
    for name in "ab":
        assert project.run(f"--evidence={project.folder / name}").exit == 0
    project.claims(law(1, "share", body=f"share = 0.3 * {drawn}"), law(2, "5.0"))
    assert project.run(f"--evidence={project.folder / 'c'}").exit == 1
    a, b, c = (project.folder / name for name in "abc")
    assert compare(a, b) == 0
    assert "no regression, no drift in 2 claims" in printed(capsys)
    assert compare(b, c, "--json") == 1
    diff = json.loads(capsys.readouterr().out)
    assert [(each["id"], each["flip"]) for each in diff["flips"]] == [("X2", "regression")]
    (drift,) = diff["drifts"]
    assert drift["id"] == "X1"
    assert drift["shift"]["shift"] == pytest.approx(0.523, abs=1e-3)  # log10(1 / 0.3)


def test_comparing_does_not_wait_for_torch(before, after):
    code = "import sys; from assay.harness.cli.main import main; main(sys.argv[1:]); "
    code += "sys.exit(3 * ('torch' in sys.modules))"
    command = [sys.executable, "-c", code, "compare", before, after]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, timeout=300).returncode == 0
