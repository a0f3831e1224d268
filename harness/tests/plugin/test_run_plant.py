"""A run on a damaged model: told apart from the healthy one in name, evidence and expectations."""

from __future__ import annotations

from assay.harness.tests.support.sessions import Project, law

FAULT = "future-seen-by-one"
DAMAGED = f"tiny:gpt2+{FAULT}"
CAUSAL = law(1, "after(subject)", body="draw(st.integers(0, 3), 'a number')")
AFTER = '''
def after(subject):
    """How much the first row changes with the second token, over what noise is allowed."""
    one, other = (subject.rows(torch.tensor([[1, t]]))["logits"][0, 0] for t in (2, 3))
    return float((one - other).abs().max()) * 1e3

'''


def test_a_planted_model_is_judged_and_kept_by_itself(project: Project) -> None:
    project.claims(AFTER + CAUSAL)
    entry = '[[claim]]\nid = "X1"\nverdict = "refuted"\nreason = "known"\n'
    project.write("claims/expectations/tiny.toml", f'model = "tiny:*"\n{entry}')
    # The healthy model keeps the law, which the pattern's entry does not allow for ...
    assert project.run("--json=healthy.json").exit == 1
    # ... and is not about the damaged one, which breaks it.
    run = project.run(f"--model={DAMAGED}", "--json=damaged.json")
    assert run.exit == 1
    assert "no expectation says so" in run.output or "1 refuted" in run.output
    healthy, damaged = project.json("healthy.json"), project.json("damaged.json")
    assert [c["verdict"] for c in healthy["claims"]] == ["upheld"]
    assert [c["verdict"] for c in damaged["claims"]] == ["refuted"]
    assert f"--model={DAMAGED}" in damaged["claims"][0]["counterexample"]["replay"]
    assert [*healthy["run"]["subjects"]] == ["tiny:gpt2"]
    assert [*damaged["run"]["subjects"]] == [DAMAGED]
    digests = {
        subject["digest"]
        for report in (healthy, damaged)
        for subject in report["run"]["subjects"].values()
    }
    assert len(digests) == 2


def test_nothing_is_recorded_as_expected_of_a_damaged_model(project: Project) -> None:
    project.claims(law(1))
    run = project.run(f"--model={DAMAGED}", "--expectations=record")
    assert run.refused("--expectations=record: nothing is expected of a model with a fault")
    assert project.ran == []
