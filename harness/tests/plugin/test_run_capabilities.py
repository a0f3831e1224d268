"""Runs on models that lack what their type has, and on models said to be something else."""

from __future__ import annotations

from assay.fixtures.families import offers
from assay.harness.models import capabilities
from assay.harness.tests.support.sessions import law

DEAF = """
from assay.fixtures import subjects
from assay.harness.models.loading.runs import Options

def drop(module, arguments, named):
    named.pop("position_ids", None)
    return arguments, named

@pytest.fixture(scope="session")
def subject(request):
    made = subjects.load(request.param, Options())
    if not os.environ.get("HEALTHY"):
        made.model.register_forward_pre_hook(drop, with_kwargs=True)
    return made

"""
"""A model whose forward takes positions and ignores them."""

LACKS = (
    "tiny:gpt2 lacks `position-ids` (with it `packing`, `one-row-of-positions`, "
    "`positions-alone`), which causal:gpt2 has in "
    f"transformers {offers.version()}: the model takes position_ids and does not use them"
)

ALLOWED = """
model = "tiny:gpt2"
{names}
"""


def allowed(*names: str) -> str:
    """A file of expectations that allows each of these lacks."""
    entries = [f'[[capability]]\nname = "{n}"\nreason = "a known defect"' for n in names]
    return ALLOWED.format(names="\n".join(entries))


def test_a_lost_capability_ends_the_run_with_1_by_name_though_every_claim_is_upheld(project):
    project.claims(DEAF, law(1))
    run = project.run("--json=out.json")
    assert run.exit == 1
    assert f"ERROR: {LACKS}" in run.output
    assert project.verdicts() == {"law 1": "upheld"}
    lacks = project.json()["run"]["subjects"]["tiny:gpt2"]["recorded"]["lacks"]
    assert "position-ids" in lacks
    assert project.json()["run"]["exit"] == 1
    assert project.run("--json=out.json", HEALTHY="1").exit == 0

    project.write("claims/expectations/gpt2.toml", allowed(*lacks))
    assert project.run().exit == 0
    run = project.run(HEALTHY="1")
    assert run.exit == 1
    assert "expects that it lacks it: remove that entry" in run.output


def test_what_a_model_is_meant_to_be_is_in_the_run_and_in_the_replaying_command(project):
    project.claims(
        "from assay.claims.positions.test_positions import "
        "test_without_a_causal_mask_permuting_both_restores_the_output\n"
    )
    run = project.run("--attends=both", "--explain", "--json=out.json")
    assert run.exit == 1
    assert "meant to attend both ways: --attends both says so" in run.output
    assert project.json()["run"]["attends"] == "both"
    (claim,) = project.json()["claims"]
    assert claim["verdict"] == "refuted"
    assert "--attends=both" in claim["counterexample"]["replay"]
    assert "capabilities of tiny:gpt2 are not judged: its type is recorded otherwise" in run.output


def test_that_bits_must_be_equal_is_in_the_run_and_in_the_replaying_command(project):
    project.claims(
        "from assay.claims.running.test_batch_size import "
        "test_a_row_does_not_depend_on_the_size_of_its_batch\n"
    )
    usual, bitwise = project.runs(
        ["--claim=G9:32", "--profile=glance", "--json=usual.json"],
        ["--claim=G9:32", "--profile=glance", "-o", "bitwise=true", "--json=out.json"],
    )
    assert (usual.exit, bitwise.exit) == (0, 1)
    assert not project.json("usual.json")["run"]["bitwise"]
    assert project.json()["run"]["bitwise"]
    (claim,) = project.json()["claims"]
    assert "the bits of row" in claim["counterexample"]["where"]
    assert "-o bitwise=true" in claim["counterexample"]["replay"]


PROBES = """
import assay.harness.models.capabilities.registry as registry

probe_of = registry._probe

def noting(name):
    def probe(subject):
        with open("ran", "a") as file:
            file.write(f"{name}\\n")
        probe_of(name)(subject)
    return probe

registry._probe = noting
"""
"""Added to a conftest: notes each probe."""


def test_only_what_a_claim_needs_is_probed_before_the_last_claim(project):
    needs = law(2).replace('"law 2")', '"law 2", needs=["tied-head"])')
    project.claims(law(1), needs, law(3))
    (project.folder / "conftest.py").open("a").write(PROBES)
    assert project.run("--json=out.json").exit == 0
    assert project.ran[:4] == ["1", "tied-head", "2", "3"]
    probes = project.ran[4:]
    assert len(probes) == len(set(probes)), "a probe ran twice"
    subject = project.json()["run"]["subjects"]["tiny:gpt2"]
    assert set(subject["capabilities"]) | set(subject["missing"]) == set(capabilities.names())
    assert subject["context"]
    assert subject["attends"]["ways"] == "causal"


def test_what_ends_a_run_before_its_last_claim_leaves_the_subject_in_short(project):
    project.claims(law(1, "2.0"), law(2))
    assert project.run("-x", "--json=out.json").exit == 1
    subject = project.json()["run"]["subjects"]["tiny:gpt2"]
    assert len(subject["digest"]) == 64
    assert not subject["capabilities"]
    assert project.run("--resume", "--json=out.json").exit == 1
    assert project.json()["run"]["subjects"]["tiny:gpt2"]["capabilities"]
