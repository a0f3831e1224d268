"""Generation is the same with and without the cache (document 004)."""

from __future__ import annotations

import pytest

from fixtures.prompts import prompts
from harness import generation
from harness.laws import law


@law(
    "C4",
    "generation is the same with and without the cache",
    needs=["generation", "cache", "lm-head"],
    source="004, answers 1 and 2",
    control="generation from a prompt whose last token is another",
    enough=6,
)
@pytest.mark.parametrize("mode", ["greedy", "sampling", "assisted"])
def test_generation_is_the_same_with_and_without_the_cache(subject, mode, draw, check):
    longest = (subject.context or 40) - generation.NEW_TOKENS
    prompt = draw(prompts(subject, longest=min(32, longest), rows=1), "prompt")
    plain = generation.scores(subject, prompt.ids, mode, use_cache=False)
    expected = plain.reference(subject)
    cached = generation.scores(subject, prompt.ids, mode, use_cache=True)
    # Up to the first token that differs: if the scores there agree, it was a near tie.
    same = plain.common(cached)
    check.same(expected.at(slice(0, same)), cached.rows.at(slice(0, same)))
    altered = subject.content(prompt.ids + (prompt.ids.new_ones(1) * 3))
    check.rejects(
        expected.at(slice(0, 1)),
        lambda: generation.scores(subject, altered, mode, use_cache=True).rows.at(slice(0, 1)),
    )


@law(
    "C4",
    "beam search finds the same score with and without the cache",
    needs=["generation", "cache", "lm-head"],
    source="004, answers 1 and 2",
    control="beam search from a prompt whose last token is another",
    enough=6,
)
def test_beam_search_finds_the_same_score_with_and_without_the_cache(subject, draw, check):
    longest = (subject.context or 40) - generation.NEW_TOKENS
    prompt = draw(prompts(subject, longest=min(32, longest), rows=1), "prompt")
    plain = generation.beam_score(subject, prompt.ids, use_cache=False)
    cached = generation.beam_score(subject, prompt.ids, use_cache=True)
    check.judge(abs(cached - plain) / max(1.0, abs(plain)), check.tolerance.floor, "best beam")
    if check.wants_control:
        altered = subject.content(prompt.ids + 3)
        other = generation.beam_score(subject, altered, use_cache=True)
        check.judge_control(abs(other - plain) / max(1.0, abs(plain)), check.tolerance.floor)
