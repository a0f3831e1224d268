"""A model spread over two processes computes what it computes in one (beyond the documents)."""

from __future__ import annotations

import pytest

from assay.fixtures.prompts import prompts
from assay.harness.checking.laws import law
from assay.harness.models import capabilities
from assay.harness.operations import generation, parallel, training

SOURCE = "beyond the documents; transformers#40031, #48205"
ZEROED = "one process's shard of a weight is zero"

by_each_plan = pytest.mark.parametrize("plan", ["tensor", "expert"])


@law(
    "G12",
    "rows of two processes are those of one",
    needs=["tensor-parallel"],
    source=SOURCE,
    control=ZEROED,
    enough=6,
    slow=True,
)
@by_each_plan
def test_rows_of_two_processes_are_those_of_one(subject, plan, draw, check):
    capabilities.require(subject, f"{plan}-parallel")
    prompt = draw(short_prompts(subject), "prompt")
    expected = check.reference(lambda s: s.rows(prompt.ids))
    for rows in parallel.rows(subject, plan, prompt.ids):
        check.same(expected, rows)
    check.rejects(expected, lambda: parallel.rows(subject, plan, prompt.ids, zeroed=True)[0])


@law(
    "G12",
    "gradients of two processes, gathered, are those of one",
    needs=["tensor-parallel", "lm-head", "parameter-gradients"],
    source=SOURCE,
    control=ZEROED,
    enough=6,
    slow=True,
)
@by_each_plan
def test_gradients_of_two_processes_are_those_of_one(subject, plan, draw, check):
    capabilities.require(subject, f"{plan}-parallel")
    prompt = draw(short_prompts(subject), "prompt")
    samples, names = [training.sample(subject, prompt.ids)], training.names(subject)
    plain = training.Plain.of(subject, samples)
    for gathered in parallel.gradients(subject, plan, samples, names):
        judged = plain.judge(check, gathered)
    if check.wants():
        wrong = parallel.gradients(subject, plan, samples, names, zeroed=True)[0]
        judged.rejects(check, wrong)
    judged.sees(check)


@law(
    "G12",
    "two processes generate what one does",
    needs=["tensor-parallel", "cached-generation", "lm-head", "causal"],
    source=SOURCE,
    control=ZEROED,
    enough=4,
    slow=True,
)
@by_each_plan
def test_two_processes_generate_what_one_does(subject, plan, draw, check):
    capabilities.require(subject, f"{plan}-parallel")
    prompt = draw(short_prompts(subject), "prompt")
    alone = generation.scores(subject, prompt.ids, "greedy", cached=False)
    for spread in parallel.greedy(subject, plan, prompt.ids):
        expected, same = alone.reference(subject), slice(0, alone.common(spread))
        check.same(expected.at(same), spread.rows.at(same))
        allowed = generation.near_tie(expected.at(same), check.tolerance)
        check.judge(alone.gap(spread), allowed, "the choice of a token")
    first = slice(0, 1)
    check.rejects(
        alone.reference(subject).at(first),
        lambda: parallel.greedy(subject, plan, prompt.ids, zeroed=True)[0].rows.at(first),
    )


def short_prompts(subject):
    """Prompts of 3 to 16 tokens that leave room for their continuations."""
    shortest = max(3, subject.shortest + 1)
    room = (subject.context or 96) - generation.NEW_TOKENS
    return prompts(subject, shortest=shortest, longest=max(shortest, min(16, room)), rows=2)
