"""Claims about Assay's own toys: once a run, under a name of their own, where they are named."""

from __future__ import annotations

import pytest

from assay.harness.plugin import toy
from assay.harness.tests.support.sessions import Project, law

ON_TOYS = law(2).replace('"law 2")', '"law 2", toy=True)')
FINDING_ON_TOYS = """
from assay.harness.checking.findings import Bound, finding
from assay.harness.checking.statistics import share

@finding("X3", "finding 3", source="a test", bound=Bound(share, at_least=0.5), control="none",
         toy=True)
def test_finding_3(subject, draws, sample):
    sample.add(effect=[1.0] * len(draws), control=[0.0] * len(draws))

"""
TOY = "--model=toy"
TWO = ("--model=tiny:gpt2", "--model=tiny:llama", TOY, "--profile=glance", "--json=out.json")


def pairs(project: Project) -> set[tuple[str, str]]:
    """(claim, subject) of every result in the JSON."""
    return {(claim["id"], claim["subject"]) for claim in project.json()["claims"]}


EXPECTED = {("X1", "tiny:gpt2"), ("X1", "tiny:llama"), ("X2", "toy")}


def test_a_claim_on_toys_runs_once_whichever_the_models_and_their_options(project: Project):
    project.claims(law(1), ON_TOYS)
    ended = project.run(*TWO, "--attention=eager")
    assert ended.exit == 0, ended.output
    assert pairs(project) == EXPECTED
    run = project.json()["run"]
    kernels = {name: subject["attention"] for name, subject in run["subjects"].items()}
    assert kernels == {"tiny:gpt2": "eager", "tiny:llama": "eager", "toy": "sdpa"}
    assert run["per_subject"] == 1


@pytest.mark.parametrize(
    ("fault", "verdict"),
    [("kernel-minds-order", "upheld"), ("rotation-stops", "not applicable")],
)
def test_a_fault_is_injected_into_the_toys_if_they_can_have_it(
    project: Project, fault: str, verdict: str
):
    project.claims(law(1), ON_TOYS)
    toy = f"toy+{fault}"
    project.run(f"--model={toy}", "--profile=glance", "--json=out.json")
    assert {c["subject"]: c["verdict"] for c in project.json()["claims"]} == {toy: verdict}


def test_a_counterexample_on_toys_is_replayed(project: Project):
    project.claims(law(1), ON_TOYS.replace("0.5", "2.0"))
    ended = project.run(TOY, "--profile=glance", "--json=out.json")
    assert ended.exit == 1
    (broken,) = [c for c in project.json()["claims"] if c["verdict"] == "refuted"]
    command = broken["counterexample"]["replay"]
    assert "[toy]" in command
    assert "--model=toy" in command
    project.forget_ran()
    again = project.run(*(part.strip("'") for part in command.split()[1:]))
    assert again.exit == 1
    assert "law 2" in again.output
    assert set(project.ran) == {"2"}


def test_what_is_expected_of_a_model_is_recorded_without_the_toys(project: Project):
    project.claims(law(1), ON_TOYS)
    ended = project.run("--model=tiny:gpt2", "--profile=glance", "--expectations=record")
    assert ended.exit == 0, ended.output
    written = {path.name for path in (project.folder / "claims" / "expectations").iterdir()}
    assert written == {"tiny-gpt2.toml"}
    assert project.run("--model=toy", "--expectations=record").exit == 0
    assert (project.folder / "claims" / "expectations" / "toy.toml").exists()


def test_the_subject_of_a_test_is_the_longest_that_fits():
    subjects = ["tiny:xlm", "tiny:xlm-roberta", "toy"]
    assert toy.subject_of("claims/a.py::b[tiny:xlm-roberta-static]", subjects) == subjects[1]
    assert toy.subject_of("claims/a.py::b[tiny:xlm-static]", subjects) == subjects[0]
    assert toy.subject_of("claims/a.py::b[toy]", subjects) == "toy"
    assert toy.subject_of("claims/a.py::b[toyish]", subjects) == ""


@pytest.mark.parametrize(
    ("models", "run"),
    [
        (["tiny:gpt2"], False),
        (["tiny:gpt2", "toy"], True),
        (["reference:small"], True),
        (["reference+cache-shifted"], True),
        (["path/to/reference"], False),
    ],
)
def test_claims_about_toys_run_beside_the_reference_or_alone(models, run):
    assert toy.run_with(models) is run


def test_claims_about_toys_do_not_run_beside_other_models(project: Project):
    project.claims(law(1), ON_TOYS, FINDING_ON_TOYS)
    assert project.run("--model=tiny:gpt2", "--profile=glance", "--json=out.json").exit == 0
    assert pairs(project) == {("X1", "tiny:gpt2")}
    assert project.run("--model=toy", "--profile=glance", "--json=out.json").exit == 0
    assert pairs(project) == {("X2", "toy"), ("X3", "toy")}
