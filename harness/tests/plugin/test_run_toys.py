"""Claims about Assay's own toys: once a run, under a name of their own, beside any models."""

from __future__ import annotations

import pytest

from assay.harness.plugin import toy
from assay.harness.results.evidence import Evidence
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
TWO = ("--model=tiny:gpt2", "--model=tiny:llama", "--profile=glance", "--json=out.json")


def pairs(project: Project) -> set[tuple[str, str]]:
    """(claim, subject) of every result in the JSON."""
    return {(claim["id"], claim["subject"]) for claim in project.json()["claims"]}


EXPECTED = {("X1", "tiny:gpt2"), ("X1", "tiny:llama"), ("X2", "toy")}


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_claim_on_toys_runs_once_whatever_models_are_asked_for(project: Project, workers):
    project.claims(law(1), ON_TOYS)
    ended = project.run(*TWO, *workers)
    assert ended.exit == 0, ended.output
    assert pairs(project) == EXPECTED
    run = project.json()["run"]
    assert set(run["subjects"]) == {"tiny:gpt2", "tiny:llama", "toy"}
    assert run["per_subject"] == 1


def test_a_run_with_toys_is_resumed(project: Project):
    project.write("stop", "")
    kill = "os.kill(os.getpid(), signal.SIGKILL)"
    stopping = law(3, body=f"if Path('stop').exists(): {kill}")
    project.claims(ON_TOYS, law(1), stopping)
    assert project.run(*TWO).exit < 0
    first = project.ran
    project.forget_ran()
    (project.folder / "stop").unlink()
    assert "2" in first
    ended = project.run(*TWO, "--resume")
    assert ended.exit == 0, ended.output
    assert "2" not in project.ran
    assert pairs(project) > EXPECTED


def test_only_the_toys_are_run_where_they_are_the_model(project: Project):
    project.claims(law(1), ON_TOYS)
    ended = project.run("--model=toy", "--profile=glance", "--json=out.json")
    assert ended.exit == 0, ended.output
    assert pairs(project) == {("X2", "toy")}


def test_options_of_the_models_are_not_the_toys(project: Project):
    """A broken attention implementation of a model says nothing about the toys."""
    project.claims(law(1), ON_TOYS)
    ended = project.run("--model=tiny:gpt2", "--attention=eager", "--json=out.json")
    assert ended.exit == 0, ended.output
    assert project.json()["run"]["subjects"]["tiny:gpt2"]["attention"] == "eager"
    assert project.json()["run"]["subjects"]["toy"]["attention"] == "sdpa"


def test_a_counterexample_on_toys_is_replayed(project: Project):
    project.claims(law(1), ON_TOYS.replace("0.5", "2.0"))
    ended = project.run("--model=tiny:gpt2", "--profile=glance", "--json=out.json")
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


def test_a_fault_is_planted_in_the_toys_too(project: Project):
    project.claims(law(1), ON_TOYS)
    ended = project.run(
        "--model=tiny:gpt2+kernel-minds-order", "--profile=glance", "--json=out.json"
    )
    assert ended.exit == 0, ended.output
    names = {subject for _, subject in pairs(project)}
    assert names == {"tiny:gpt2+kernel-minds-order", "toy+kernel-minds-order"}


def test_a_fault_that_the_toys_cannot_have_does_not_end_the_run(project: Project):
    project.claims(law(1), ON_TOYS)
    ended = project.run("--model=tiny:llama+rotation-stops", "--profile=glance", "--json=out.json")
    assert ended.exit == 0, ended.output
    by_id = {claim["id"]: claim for claim in project.json()["claims"]}
    assert by_id["X2"]["verdict"] == "not applicable"


def test_what_is_expected_of_a_model_is_recorded_without_the_toys(project: Project):
    project.claims(law(1), ON_TOYS)
    ended = project.run("--profile=glance", "--expectations=record")
    assert ended.exit == 0, ended.output
    written = {path.name for path in (project.folder / "claims" / "expectations").iterdir()}
    assert written == {"tiny-gpt2.toml"}
    assert project.run("--model=toy", "--expectations=record").exit == 0
    assert (project.folder / "claims" / "expectations" / "toy.toml").exists()


def test_evidence_of_two_runs_has_the_toys_of_both(project: Project):
    project.claims(law(1), ON_TOYS)
    for seed in ("--seed=1", "--seed=2"):
        assert project.run("--profile=glance", seed).exit == 0
    with Evidence.open(project.folder / "evidence.sqlite") as evidence:
        subjects = [{r.subject for r in evidence.results(run.id)} for run in evidence.runs()]
    assert subjects == [{"tiny:gpt2", "toy"}] * 2


def test_toys_are_left_out_by_their_mark(project: Project):
    project.claims(law(1), ON_TOYS)
    ended = project.run("--profile=glance", "-m", "not toy", "--json=out.json")
    assert ended.exit == 0, ended.output
    assert pairs(project) == {("X1", "tiny:gpt2")}


@pytest.mark.parametrize(
    ("name", "is_toy"),
    [("toy", True), ("toy+cache-shifted", True), ("toys", False), ("reference", False)],
)
def test_the_toys_are_known_by_name(name, is_toy):
    assert toy.is_toy(name) is is_toy


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
def test_findings_about_toys_run_beside_the_reference_or_alone(models, run):
    assert toy.findings_run_with(models) is run


def test_findings_about_toys_do_not_run_beside_other_models(project: Project):
    project.claims(law(1), ON_TOYS, FINDING_ON_TOYS)
    assert project.run("--model=tiny:gpt2", "--profile=glance", "--json=out.json").exit == 0
    assert pairs(project) == {("X1", "tiny:gpt2"), ("X2", "toy")}
    assert project.run("--model=toy", "--profile=glance", "--json=out.json").exit == 0
    assert pairs(project) == {("X2", "toy"), ("X3", "toy")}
