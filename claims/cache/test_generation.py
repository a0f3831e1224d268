"""Generation is the same with and without the cache (document 004)."""

from __future__ import annotations

from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from assay.fixtures.prompts import lengths, prompts
from assay.harness.checking.laws import law
from assay.harness.models import capabilities
from assay.harness.models.capabilities import caches
from assay.harness.operations import drafting, generation, padding


@law(
    "C4",
    "generation is the same with and without the cache",
    needs=["generation", "cached-generation", "lm-head"],
    source="004, answers 1 and 2",
    control="generation from a prompt whose last token is another",
    enough=6,
    core="greedy",
)
@pytest.mark.parametrize("mode", ["greedy", "sampling", "assisted", "static"])
def test_generation_is_the_same_with_and_without_the_cache(subject, mode, draw, check):
    if mode == "static":
        caches.make(subject, "static", 1, 1)
    if mode == "assisted":
        capabilities.require(subject, "chunks-beside-cache")  # a draft is read in one chunk
    prompt = draw(short_prompts(subject, rows=1, far=int(mode == "greedy")), "prompt")
    plain = generation.scores(subject, prompt.ids, mode, cached=False)
    cached = decoded(subject, prompt.ids, mode, plain, draw)
    expected = plain.reference(subject)
    # Up to the first token that differs: if the scores there agree, it was a near tie.
    same = plain.common(cached)
    check.same(expected.at(slice(0, same)), cached.rows.at(slice(0, same)))
    if mode == "greedy":
        check.judge(plain.beaten(plain.ids), 0.0, "tokens that another's score beats")
        worse = plain.ids.clone()
        worse[:, -1] = plain.scores[:, -1].argmin(-1)
        check.sees_one("token that another's score beats", plain.beaten(worse))
    if mode != "sampling":
        allowed = generation.near_tie(expected.at(slice(0, same)), check.tolerance)
        check.judge(plain.gap(cached), allowed, f"the choice of token {same - 1}")
    altered = subject.content(prompt.ids + (prompt.ids.new_ones(1) * 3))
    first: dict[str, Any] = {"tokens": 1} if mode == "greedy" else {}  # no other is compared
    check.rejects(
        expected.at(slice(0, 1)),
        lambda: generation.scores(subject, altered, mode, True, **first).rows.at(slice(0, 1)),
    )


@law(
    "C4",
    "beam search finds the same scores with and without the cache",
    needs=["generation", "cached-generation", "lm-head"],
    source="004, answers 1 and 2",
    control="the scores of another beam in place of a beam's own",
    enough=6,
)
def test_beam_search_finds_the_same_scores_with_and_without_the_cache(subject, draw, check):
    prompt = draw(short_prompts(subject, rows=2), "prompt")
    cached = generation.beams(subject, prompt.ids, cached=True)
    if not (cached.hops and cached.are_text(subject)):
        hypothesis.reject()  # nothing was reordered, or a beam contains padding
    plain = generation.beams(subject, prompt.ids, cached=False)
    expected = cached.reference(subject, plain)
    check.same(expected, cached.rows)
    check.rejects(expected, cached.rows.map(lambda t: t.roll(1, dims=0)))


@law(
    "C4",
    "a padded batch is continued as each prompt alone",
    needs=["generation", "lm-head", "padding"],
    source="beyond 004",
    control="a neighbour's continuation in place of one's own",
    enough=4,
)
@pytest.mark.parametrize("mode", ["uncached", "greedy", "static"])
def test_a_padded_batch_is_continued_as_each_prompt_alone(subject, mode, draw, check):
    cached = mode != "uncached"
    capabilities.require(subject, "cached-generation" if cached else "lm-head")
    if mode == "static":
        caches.make(subject, "static", 1, 1)
    left = not subject.is_encoder_decoder  # an encoder's prompts are padded on the right
    if left:
        capabilities.require(subject, "left-padding")
        if "positions-argument" not in capabilities.probe(subject):  # then `generate` passes none
            capabilities.require(subject, "padding-by-mask")
    prompt = draw(short_prompts(subject, shortest=2, rows=3, least_rows=2), "prompt")
    batch = padding.ragged(subject, prompt.ids, draw(lengths(prompt), "lengths"), left)
    how = mode if cached else "greedy"
    together = generation.scores(subject, batch.ids, how, cached=cached, mask=batch.mask)
    for row, size in enumerate(batch.lengths):
        own = prompt.ids[row : row + 1, -size:]
        alone = generation.scores(subject, own, "greedy", cached=False)
        expected, mine = alone.reference(subject), together.row(row)
        same = slice(0, alone.common(mine))
        check.same(expected.at(same), mine.rows.at(same))
        neighbour = together.row((row + 1) % prompt.rows).rows
        check.rejects(expected.at(same), neighbour.at(same))


def decoded(subject, ids, mode, plain, draw):
    """Continue ``ids`` with a cache; in assisted mode by right and wrong drafts."""
    if mode != "assisted":
        return generation.scores(subject, ids, mode, cached=True)
    drafter = draw(st.sampled_from(drafting.drafters(subject)), "drafter")
    return drafting.decode(subject, ids, drafter, plain)


def short_prompts(subject, **how):
    """Prompts of up to 32 tokens, or at edges, that leave room for the continuation."""
    return prompts(subject, longest=32, at_edges=True, room=generation.NEW_TOKENS, **how)
