"""Compiled models, by which most are served (beyond the documents)."""

from __future__ import annotations

import pytest

from assay.fixtures.prompts import other_ids, prompts
from assay.harness.checking.laws import law
from assay.harness.models.reference.tolerances import one_bit_off, unequal_bits
from assay.harness.operations import compiling, generation

PROMPT = 6
"""Tokens of a prompt: another length would have a cache of another shape, compiled again."""


@law(
    "G4",
    "a compiled model computes what it does uncompiled, at several lengths",
    source="beyond the documents",
    control="another prompt's rows",
    enough=4,
    slow=True,
)
@pytest.mark.parametrize("backend", compiling.BACKENDS)
def test_a_compiled_model_computes_what_it_does_uncompiled(subject, backend, draw, check):
    compiled = compiling.forward(subject, backend)
    longest = max(
        subject.shortest, min(compiling.LENGTHS[0], subject.context or compiling.LENGTHS[0])
    )
    prompt = draw(prompts(subject, longest, longest, rows=2, least_rows=2), "prompt")
    other = draw(other_ids(subject, prompt), "other ids")
    for size in compiling.LENGTHS:
        n = max(subject.shortest, min(size, longest))
        ids = prompt.ids[:, :n]
        expected = check.reference(lambda s, ids=ids: s.rows(ids, states=False))
        rows = compiled.rows(ids)
        check.same(expected, rows)
        if subject.settings.bitwise:
            share = unequal_bits(rows, expected.plain)
            check.judge(share, 0.0, f"the bits of {n} tokens: share of elements that differ")
            check.sees_one_bit(unequal_bits(expected.plain.map(one_bit_off), expected.plain))
        check.rejects(expected, lambda n=n: compiled.rows(other[:, :n]))


@law(
    "G4",
    "a prompt is continued by compiled code on a static cache as without either",
    needs=["cached-generation", "lm-head", "causal"],
    source="beyond the documents",
    control="the scores of another prompt",
    enough=3,
    slow=True,
)
@pytest.mark.parametrize("backend", compiling.BACKENDS)
def test_a_prompt_is_continued_by_compiled_code_as_without(subject, backend, draw, check):
    prompt = draw(prompts(subject, PROMPT, PROMPT, rows=2, least_rows=2), "prompt")
    other = draw(other_ids(subject, prompt), "other ids")
    plain = generation.scores(subject, prompt.ids, "greedy", cached=False)
    compiled = compiling.continued(subject, prompt.ids, backend)
    expected, same = plain.reference(subject), slice(0, plain.common(compiled))
    check.same(expected.at(same), compiled.rows.at(same))
    allowed = generation.near_tie(expected.at(same), check.tolerance)
    check.judge(plain.gap(compiled), allowed, "the choice of a token")
    if check.wants():
        wrong = compiling.continued(subject, other, backend)
        check.rejects(expected.at(slice(0, 1)), wrong.rows.at(slice(0, 1)))
