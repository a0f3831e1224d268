"""A run that emulates another machine: recorded as such, and replayed so."""

from __future__ import annotations

import msgspec

from assay.harness.results.schema import Report
from assay.harness.tests.support import sessions
from assay.harness.tests.support.sessions import Project

ADDRESSES = """
from assay.harness.models.reference.tolerances import unequal_bits
from assay.harness.operations import variants

@a_law("X1", "a copy gives the same bits")
def test_copy(subject, draw, check):
    copied = variants.saved_and_loaded(subject)
    ids = draw(prompts(subject), "prompt").ids
    check.judge(unequal_bits(subject.rows(ids), copied.rows(ids)), 0.0, "a number")
    check.judge_control(1.0, 0.0)

@a_law("X2", "the embeddings begin at an odd multiple of 8 bytes")
def test_odd(subject, draw, check):
    check.judge(float(subject.embedding_table.data_ptr() % 16 != 8), 0.0, "address")
    check.judge_control(1.0, 0.0)

"""

BOTH = ["--emulate=rounding:5", "--emulate=allocation:odd"]

X2 = "the embeddings begin at an odd multiple of 8 bytes"


def test_a_run_rounds_and_allocates_as_it_is_asked_to(project: Project) -> None:
    project.claims(ADDRESSES)
    run = project.run(*BOTH, "--profile=glance", "--json=out.json")
    assert run.exit == 1
    report = project.json()
    assert (report["run"]["rounding"], report["run"]["allocation"]) == (5, "odd")
    msgspec.convert(report, Report)
    claims = {claim["id"]: claim for claim in report["claims"]}
    assert claims["X1"]["verdict"] == "refuted"
    assert claims["X2"]["verdict"] == "upheld"
    assert " ".join(BOTH) in claims["X1"]["counterexample"]["replay"]


def test_what_is_emulated_ends_with_the_run(project: Project) -> None:
    project.claims(ADDRESSES)
    both = project.runs(
        [*BOTH, "--claim=X2", "--json=odd.json"],
        ["--emulate=rounding:5", "--claim=X2", "--json=usual.json"],
    )
    assert len(both) == 2
    assert project.verdicts("odd.json") == {X2: "upheld"}
    if not sessions.EMULATED:
        assert project.json("usual.json")["run"]["allocation"] is None
        assert project.verdicts("usual.json") == {X2: "refuted"}
