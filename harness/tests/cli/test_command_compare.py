"""`assay compare` on runs of claims: what it prints and writes, on made-up runs and real ones."""

from __future__ import annotations

import json

from assay.harness.results import schema
from assay.harness.results.evidence import Evidence
from assay.harness.tests.support.compared import MODEL
from assay.harness.tests.support.comparing import compare, printed

# What is said.


def test_a_regression_the_other_way_round_is_a_gain(before, after, capsys):
    assert compare(after, before) == 0
    assert "no regression, 2 gained, 1 drift in 6 claims" in printed(capsys)
    assert compare(before, before) == 0
    assert "no regression, no drift in 7 claims" in printed(capsys)


def test_the_json_has_flips_drifts_and_what_is_gone(before, after, capsys):
    assert compare(before, after, "--json") == 1
    document = json.loads(capsys.readouterr().out)
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
    assert [each["id"] for each in diff["flips"]] == ["C0", "C1"]
    assert [each["id"] for each in diff["unjudged"]] == ["C2"]
    assert diff["judged"] == 0
    assert compare(before, paths[1]) == 1
    assert "1 number moved and cannot be judged, as no sample was kept: C2" in printed(capsys)
