"""Prompts that laws share: the same ones for each, which shrink, and whose passes run once."""

from __future__ import annotations

import pytest
import torch
from hypothesis import strategies as st

from assay.fixtures import subjects
from assay.fixtures.prompts import LONGEST, cuts, prompts
from assay.harness.checking import shared
from assay.harness.checking.laws import law
from assay.harness.models.loading.runs import Options
from assay.harness.models.subject import kept_rows
from assay.harness.models.subject.settings import SubjectSettings
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.completed import completed
from assay.harness.tests.support.toys import budget, fresh, seeing_ahead, verdict

LIMITS = [
    {"shortest": 1},
    {"shortest": 2, "at_edges": True},
    {"shortest": 2, "longest": 48, "rows": 3, "at_edges": True},
    {"shortest": 3, "longest": 16, "rows": 2, "least_rows": 2},
    {"shortest": 2, "rows": 2, "far": 2},
    {"longest": 1, "rows": 1},
]


def declare(body):
    return law("X1", "says", source="here", control="the control")(body)


def plain(subject, draw, check, drawn, passes):
    """A law that runs the plain path twice, and keeps what it draws and computes."""
    prompt = draw(prompts(subject, shortest=2), "prompt")
    drawn.append(prompt.ids)
    before = kept_rows.spared(subject)[0]
    expected = check.reference(lambda s: s.rows(prompt.ids))
    passes.append(kept_rows.spared(subject)[0] - before)
    check.same(expected, subject.rows(prompt.ids))
    check.rejects(expected, subject.rows(prompt.ids).map(lambda t: t + 1))


def drawn_by(subject, body, examples=8, **more):
    drawn, passes = [], []
    declared = declare(lambda subject, draw, check: body(subject, draw, check, drawn, passes))
    result = verdict(declared, subject, budget(examples), **more)
    return result, drawn, passes


@pytest.mark.parametrize("model", ["tiny:gpt2", "tiny:mistral"])
@pytest.mark.parametrize("limits", LIMITS, ids=str)
@pytest.mark.parametrize("reach", [1e3, 2.0**31], ids=["large", "small"])
def test_shared_draws_are_those_of_the_strategy(model, limits, reach):
    subject = subjects.load(model, Options())
    subject.settings = SubjectSettings(reach=reach)
    for number in range(12):
        prompt, draws, all_draws = completed(prompts(subject, **limits), number)
        assert all_draws[:-1] == draws, "all but the last, a boolean of one byte"
        assert limits.get("shortest", 1) <= prompt.length <= limits.get("longest", LONGEST)
        assert limits.get("least_rows", 1) <= prompt.rows <= limits.get("rows", 4)


def test_laws_draw_the_same_prompts_and_run_the_plain_path_once():
    subject = fresh("llama")
    first, drawn, passes = drawn_by(subject, plain)
    again, drawn_again, passes_again = drawn_by(subject, plain)
    assert first.verdict is again.verdict is Verdict.UPHELD
    assert all(torch.equal(a, b) for a, b in zip(drawn, drawn_again, strict=True))
    assert len({tuple(ids.shape) for ids in drawn}) > 3
    assert passes[:8] == [0] * 8
    assert passes_again[:8] == [0] + [2] * 7, "the first example is each law's own"
    assert again.details["passes and tokens shared"][0] == 14
    assert (first.observed, first.bound) == (again.observed, again.bound)


def test_a_law_that_draws_nothing_runs_once():
    runs = []

    def body(subject, draw, check):
        runs.append(1)
        check.judge(0.0, 1.0)
        check.judge_control(2.0, 1.0)

    assert verdict(declare(body), fresh("llama"), budget(10)).verdict is Verdict.UPHELD
    assert len(runs) == 1


def test_a_law_that_draws_no_prompt_first_draws_its_own():
    def body(subject, draw, check, drawn, passes):
        drawn.append(draw(st.integers(0, 1 << 30), "number"))
        draw(prompts(subject), "prompt")
        check.judge(0.0, 1.0)
        check.judge_control(2.0, 1.0)

    result, drawn, _ = drawn_by(fresh("llama"), body)
    assert result.examples == len(drawn) == 8
    assert shared.offered(st.integers()) is None


def test_a_shared_prompt_that_breaks_a_law_shrinks():
    def body(subject, draw, check):
        prompt = draw(prompts(subject, shortest=2), "prompt")
        cut = draw(cuts(prompt), "cut")
        expected = check.reference(lambda s: s.rows(prompt.ids[:, :cut]))
        check.same(expected, subject.rows(prompt.ids).at(slice(0, cut)))

    result = verdict(declare(body), seeing_ahead(), budget(10))
    assert result.verdict is Verdict.REFUTED
    assert result.counterexample is not None
    assert result.counterexample.inputs["prompt"].count("(") == 2
