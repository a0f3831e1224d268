"""Drafted tokens that a model verifies while it generates (beyond the documents)."""

from __future__ import annotations

import pytest

from assay.fixtures.prompts import prompts
from assay.harness.checking.laws import law
from assay.harness.models import capabilities
from assay.harness.operations import drafting, generation

TOKENS = 12
"""Tokens to generate: enough for some drafts to be right and some to be wrong."""


@law(
    "G6",
    "drafted tokens change nothing",
    needs=["assisted-generation"],
    source="beyond the documents; transformers#30042, #30413",
    control="a wrong draft accepted unseen",
    enough=6,
)
@pytest.mark.parametrize("drafter", [*drafting.DRAFTERS])
def test_drafted_tokens_change_nothing(subject, drafter, draw, check):
    capabilities.require(subject, drafting.DRAFTERS[drafter])
    ids = draw(short_prompts(subject), "prompt").ids
    if drafter == "prompt":
        ids = drafting.repeating(subject, ids)
    plain = generation.scores(subject, ids, "greedy", cached=False, tokens=TOKENS)
    drafted, drafts = drafting.draft(subject, ids, drafter, plain, tokens=TOKENS)
    counts = check.details.setdefault("drafts accepted and rejected, by example", [])
    counts.append([drafts.right, drafts.wrong])
    expected, same = plain.reference(subject), slice(0, plain.common(drafted))
    check.same(expected.at(same), drafted.rows.at(same))
    allowed = generation.near_tie(expected.at(same), check.tolerance)
    check.judge(plain.gap(drafted), allowed, f"the choice of token {plain.common(drafted) - 1}")
    if subject.settings.bitwise:
        check.judge(plain.unlike(drafted), 0.0, "tokens: share that differ")
        other = plain.choosing(0, int(plain.scores[0, 0].argmin()))
        check.sees_one("token that differs", plain.unlike(other))
    # Its own choice may be a near tie in 16 bits; then the logits after it differ.
    unseen = max((plain.choosing(*each) for each in drafts.rejected), key=plain.gap)
    check.judge_control(plain.gap(unseen), allowed)
    check.rejects(expected, lambda: unseen.recomputed(subject, subject))


@law(
    "G6",
    "drafted tokens change nothing on the kept cache of a prefix",
    needs=["assisted-generation", "continued-generation", "weights-in-memory"],
    source="beyond the documents; vllm#53912",
    control="the kept cache of another prefix",
    enough=4,
    slow=True,
)
def test_drafts_change_nothing_on_a_kept_prefix(subject, draw, check):
    ids = draw(short_prompts(subject, shortest=3), "prompt").ids
    cache = subject(ids[:, :-2], keep=True, states=False).cache
    other = subject(subject.content(ids[:, :-2] + 5), keep=True, states=False).cache
    plain = generation.scores(subject, ids, "greedy", cached=False, tokens=TOKENS)
    drafted = drafting.on_cache(subject, ids, cache, tokens=TOKENS)
    expected, same = plain.reference(subject), slice(0, plain.common(drafted))
    check.same(expected.at(same), drafted.rows.at(same))
    allowed = generation.near_tie(expected.at(same), check.tolerance)
    check.judge(plain.gap(drafted), allowed, f"the choice of token {plain.common(drafted) - 1}")
    if check.wants():
        wrong = drafting.on_cache(subject, ids, other, tokens=TOKENS)
        check.rejects(expected.at(slice(0, 1)), wrong.rows.at(slice(0, 1)))


def short_prompts(subject, shortest=1):
    """Prompts that leave room for the continuation and for drafts beyond its end."""
    room = (subject.context or 96) - TOKENS - drafting.AT_ONCE - 2
    return prompts(subject, shortest, longest=max(shortest, min(24, room)), rows=1)
