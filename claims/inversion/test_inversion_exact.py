"""The information is there: exact search recovers what descent does not (E22)."""

from __future__ import annotations

import pytest

from assay.fixtures import sides, texts
from assay.harness.checking.findings import Bound, finding
from assay.harness.checking.statistics import bounded_mean
from assay.harness.inversion import Target, exact

DRAWS = 512
"""A bound of 0.99 is cleared where all tokens of these are recovered, or all but one."""

BLOCK = 64
"""Draws of one search."""


@finding(
    "E22",
    "exact search recovers the tokens at every depth",
    needs=["causal", "blocks", "inputs-embeds"],
    source="language models are injective (arXiv 2510.15511)",
    bound=Bound(bounded_mean, at_least=0.99),
    control="the target of another prompt",
    draws=DRAWS,
    block=BLOCK,
)
@pytest.mark.parametrize("source", [texts.TEXT, texts.RANDOM])
@pytest.mark.parametrize("depth", ["one block", "half of the blocks", "all blocks"])
def test_exact_search_recovers_the_tokens(subject, source, depth, draws, sample):
    search(subject, source, depth, draws, sample)


@finding(
    "E22",
    "exact search recovers the tokens of an untrained twin at every depth",
    needs=["trained", "causal", "blocks", "inputs-embeds"],
    source="language models are injective (arXiv 2510.15511)",
    bound=Bound(bounded_mean, at_least=0.99),
    control="the target of another prompt",
    draws=DRAWS,
    block=BLOCK,
)
@pytest.mark.parametrize("depth", ["one block", "half of the blocks", "all blocks"])
def test_exact_search_recovers_the_tokens_of_an_untrained_twin(subject, depth, draws, sample):
    source = texts.RANDOM if subject.tokenizer is None else texts.TEXT
    search(sides.awake(sides.untrained(subject).models[0]), source, depth, draws, sample)


def search(subject, source, depth, draws, sample):
    """Search for the prompts of ``draws``; the control compares with another prompt."""
    blocks = {"one block": 1, "half of the blocks": (subject.layers + 1) // 2}
    target = Target(blocks.get(depth, subject.layers))
    tried, distances = [], []
    for prompt in texts.prompts(subject, source, draws, (5, 12)):
        result = exact(subject, target, target.output(subject, prompt.ids).detach())
        right = (result.ids == prompt.ids) & result.verified
        by_luck = result.ids.roll(1, 0) == prompt.ids
        sample.add(effect=right.double().mean(1), control=by_luck.double().mean(1))
        tried.append(result.tried.flatten().double().cpu())
        distances.append(result.distances.flatten().cpu())
    share = [float(each.mean()) / subject.vocabulary for each in tried]
    sample.details["share of the vocabulary tried"] = max(share)
    sample.details["largest distance of a state"] = max(float(each.max()) for each in distances)
