"""Runs on engines, from the options to the files."""

from __future__ import annotations

import pytest

from assay.harness.cli.main import main
from assay.harness.engines import libraries
from assay.harness.tests.support.sessions import ROOT, Project, law

OWN = "engine:own:chat+stale-entry"


def test_a_run_on_an_engine_has_its_claims_alone(project: Project):
    page, json = project.folder / "page.html", project.folder / "out.json"
    ended = project.run(
        *("claims/engines/test_scores.py", "claims/cache/test_cache.py"),
        *(f"--model={OWN}", "--against=chat", "--profile=glance"),
        *("--claim=I1", "--claim=I4:token on", f"--report={page}", f"--json={json}"),
        folder=ROOT,
    )
    assert ended.exit == 1, ended.output
    claims = project.json()["claims"]
    assert {claim["id"] for claim in claims} == {"I1", "I4"}
    (broken,) = (claim for claim in claims if claim["verdict"] == "refuted")
    assert "--against=chat" in broken["counterexample"]["replay"]
    subject = project.json()["run"]["subjects"][OWN]
    assert subject["model_type"] == "Assay's own engine"
    assert "engine-scores" in subject["capabilities"]
    assert "I4" in page.read_text()


def test_bad_engines_are_one_line_and_exit_4(project: Project):
    served = law(2).replace('"law 2"', '"law 2", needs=["engine-scores"]')
    project.claims(law(1), served)
    for ended, words in zip(
        project.runs(
            ["--model=engine:nobodys:x"],
            ["--model=engine:own:chat+stale"],
            [f"--model={OWN}", "--against=/no/such/folder"],
            ["--model=tiny:gpt2", "--against=chat"],
            [f"--model={OWN}", "--against= "],
        ),
        ["no such engine", "no fault 'stale'", "no such folder", "is no engine", "is empty"],
        strict=True,
    ):
        assert ended.refused(words), ended.output


def test_the_faults_of_engines_are_listed(capsys) -> None:
    assert main(["faults"]) == 0
    printed = capsys.readouterr().out
    assert "stale-entry" in printed
    assert "engine:own:MODEL" in printed


@pytest.mark.parametrize(
    ("option", "vocabulary", "listed"),
    [("", 392, 0), ("", 151_936, 1000), ("151936", 151_936, 0), ("20", 392, 20)],
)
def test_of_a_large_vocabulary_the_best_are_listed(option, vocabulary, listed) -> None:
    assert libraries.best({"best": option}, vocabulary) == listed
