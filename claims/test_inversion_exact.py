"""The information is there: exact search recovers what descent does not (E22)."""

from __future__ import annotations

import pytest

from assay.fixtures import sides, texts
from assay.harness.checking.findings import Bound, finding
from assay.harness.checking.statistics import bounded_mean
from assay.harness.operations.inversion import Target
from assay.harness.operations.inversion.search import exact

DRAWS = 512
"""Of which all are recovered in full, or all but one token, where 0.99 is cleared."""

BLOCK = 64
"""Draws that are searched for at once."""


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
    search(sides.untrained(subject).models[0], source, depth, draws, sample)


def search(subject, source, depth, draws, sample):
    """Search for the prompts of ``draws``, and for others than their target is of."""
    blocks = {"one block": 1, "half of the blocks": (subject.layers + 1) // 2}
    target = Target(blocks.get(depth, subject.layers))
    tried, distances = [], []
    for prompt in texts.prompts(subject, source, draws, (5, 12)):
        found = exact(subject, target, target.output(subject, prompt.ids).detach())
        right = (found.ids == prompt.ids) & found.verified
        others = found.ids.roll(1, 0) == prompt.ids
        sample.add(effect=right.double().mean(1), control=others.double().mean(1))
        tried.append(found.tried.flatten().double().cpu())
        distances.append(found.distances.flatten().cpu())
    share = [float(each.mean()) / subject.vocabulary for each in tried]
    sample.details["share of the vocabulary tried"] = max(share)
    sample.details["largest distance of a state"] = max(float(each.max()) for each in distances)
