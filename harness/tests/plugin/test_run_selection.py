"""Runs of some claims, picked by number, and on models that a version cannot have."""

from __future__ import annotations

import re
from itertools import groupby

import pytest

from assay.harness.results.evidence import Evidence
from assay.harness.tests.support.sessions import ROOT, Project, law

VARIANTS = law(2, decorator="@pytest.mark.parametrize('kind', ['static', 'dynamic'])").replace(
    "(subject,", "(subject, kind,"
)


@pytest.mark.parametrize(
    ("options", "ran"),
    [
        (["--claim=X2:[static]"], ["2"]),
        (["--claim=X1", "--claim=X2:dynamic"], ["1", "2"]),
    ],
)
def test_claims_are_picked_by_number_and_variant(project: Project, options, ran):
    project.claims(law(1), VARIANTS, law(3))
    ended = project.run(*options, "--profile=glance")
    assert ended.exit == 0, ended.output
    assert sorted(set(project.ran)) == sorted(set(ran))
    with Evidence.open(project.folder / "evidence.sqlite") as evidence:
        (run,) = evidence.runs()
        assert len(evidence.results(run.id)) == len(ran) == run.per_subject
        numbers = [each.removeprefix("--claim=") for each in options]
        assert run.selection.numbers == sorted(numbers)


@pytest.mark.parametrize(
    ("options", "ran"),
    [
        ([], ["1"]),
        (["--profile=standard"], ["1", "2"]),
        (["-m", "slow_law"], ["2"]),
        (["--claim=X2"], ["2"]),
    ],
)
def test_slow_laws_run_in_the_long_profiles_or_where_they_are_named(project, options, ran):
    project.claims(law(1), law(2, slow=True))
    ended = project.run("--model=tiny:gpt2", *options)
    assert ended.exit == 0, ended.output
    assert sorted(set(project.ran)) == ran
    assert ("slow laws, and findings that need more draws, were left out" in ended.output) == (
        not options
    )


FINDING = """
from assay.harness.checking.findings import Bound, finding
from assay.harness.checking.statistics import median

ABOVE = Bound(median, above=0.0)

@finding("X2", "says", source="here", control="none", bound=ABOVE, slow=("rare",))
@pytest.mark.parametrize("kind", ["often", "rare"])
def test_finding(subject, kind, draws, sample):
    ran(kind)

"""


@pytest.mark.parametrize(
    ("options", "ran"),
    [
        ([], ["1", "often"]),
        (["--profile=standard"], ["1", "often", "rare"]),
        (["-m", "slow_finding"], ["rare"]),
        (["--claim=X2:rare"], ["rare"]),
    ],
)
def test_variants_that_need_more_draws_run_in_the_long_profiles(project, options, ran):
    project.claims(FINDING, law(1))
    project.run("--model=tiny:gpt2", *options)
    assert [each for each, _ in groupby(project.ran)] == ran


def test_laws_come_before_findings(project: Project):
    project.claims(FINDING, law(1), law(3))
    project.run("--profile=glance", "--model=tiny:gpt2", "--model=tiny:llama")
    assert [each for each, _ in groupby(project.ran)] == ["1", "3", "often"] * 2


def test_a_claim_that_is_not_there_is_refused(project: Project):
    project.claims(law(1), VARIANTS)
    claims = ("X4", "X2:[quantised]", "x2")
    runs = project.runs(*([f"--claim={claim}"] for claim in claims))
    for claim, run in zip(claims, runs, strict=True):
        words = "did you mean X2?" if claim == "x2" else "there are X1, X2"
        assert run.refused(f"--claim {claim}", words), run.output
    assert not project.ran


def test_only_files_of_the_claims_that_are_named_are_imported(project: Project):
    ended = project.run("--claim=C2", "--collect-only", "-q", folder=ROOT)
    assert ended.exit == 0, ended.output
    assert "claims/cache/test_cache.py::test_cached_decoding" in ended.output
    (left,) = re.findall(r"\((\d+) deselected\)", ended.output)
    assert int(left) < 20


def test_claims_do_not_apply_to_a_model_that_this_version_cannot_have(project: Project):
    project.claims(law(1))
    models = ["--model=tiny:gpt2", "--model=tiny:gpt22"]
    assert project.run(*models).refused("knows no model type 'gpt22'")
    ended = project.run(*models, "-o", "absent_ok=true", "--json=out.json")
    assert ended.exit == 0, ended.output
    by_model = {claim["subject"]: claim for claim in project.json()["claims"]}
    assert by_model["tiny:gpt2"]["verdict"] == "upheld"
    assert by_model["tiny:gpt22"]["verdict"] == "not applicable"
    assert "knows no model type 'gpt22'" in by_model["tiny:gpt22"]["reason"]
