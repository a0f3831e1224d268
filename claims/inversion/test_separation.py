"""How far apart the states of different tokens are, and what quantising activations leaves."""

from __future__ import annotations

import pytest

from assay.fixtures import texts
from assay.fixtures.neighbours import separation
from assay.harness.checking.findings import Bound, finding
from assay.harness.checking.statistics import share
from assay.harness.inversion import Target, accepted

DRAWS = 4608
"""So many equal outcomes decide a share of 0.999."""

BLOCK = 512
LENGTHS = (4,)

HARDLY_ANY = 0.001
"""The share of equal states up to which there are none, as far as the draws can tell."""

RIVALS = 4
"""Other tokens whose states are compared: those that a linear map expects to be nearest."""

depths = pytest.mark.parametrize("depth", ["one block", "half of the blocks", "all blocks"])


def target_of(subject, depth):
    """The output of the named blocks."""
    blocks = {"one block": 1, "half of the blocks": (subject.layers + 1) // 2}
    return Target(blocks.get(depth, subject.layers))


def separations(subject, target, draws):
    """Those of random prompts, the same for all claims: a state is computed once."""
    shared = draws.for_claim("separation")
    for prompts in texts.prompts(subject, texts.RANDOM, shared, LENGTHS):
        yield separation(subject, target, prompts, RIVALS)


@finding(
    "E29",
    "states of different tokens after the same prompt differ by more than rounding",
    needs=["causal", "blocks", "inputs-embeds"],
    source="arXiv 2510.15511; arXiv 2511.14808",
    bound=Bound(share, at_least=0.999),
    control="the token itself as the other one",
    draws=DRAWS,
    most=2 * DRAWS,
    block=BLOCK,
)
@depths
def test_states_of_different_tokens_differ_by_more_than_rounding(subject, depth, draws, sample):
    tolerance = accepted(subject)
    for each in separations(subject, target_of(subject, depth), draws):
        sample.add(effect=each.margin > tolerance, control=each.itself > tolerance)
        sample.add(margin=each.margin, slope=each.slope, equal_embeddings=each.equal)
    near, equal = sample.values("effect") == 0, sample.values("equal_embeddings") == 1
    sample.why = f"{sum(near & equal)} of {sum(near)} such pairs of tokens have equal embeddings"
    sample.details["rivals"] = RIVALS
    sample.details["tolerance"] = tolerance


@finding(
    "E30",
    "no states of different tokens are the same in 8 bits",
    needs=["causal", "blocks", "inputs-embeds"],
    source="arXiv 2511.14808",
    bound=Bound(share, at_most=HARDLY_ANY),
    control="the token itself as the other one",
    draws=DRAWS,
    most=2 * DRAWS,
    block=BLOCK,
)
def test_no_states_of_different_tokens_are_the_same_in_8_bits(subject, draws, sample):
    for each in separations(subject, Target(subject.layers), draws):
        sample.add(effect=each.same[8], control=each.again[8])


@finding(
    "E30",
    "some states of different tokens are the same in 4 bits",
    needs=["causal", "blocks", "inputs-embeds"],
    source="arXiv 2511.14808",
    bound=Bound(share, above=HARDLY_ANY),
    control="states that are not quantised",
    control_bound=Bound(share, at_most=HARDLY_ANY),
    draws=DRAWS,
    most=DRAWS,
    block=BLOCK,
)
def test_some_states_of_different_tokens_are_the_same_in_4_bits(subject, draws, sample):
    for each in separations(subject, Target(subject.layers), draws):
        sample.add(effect=each.same[4], control=each.margin <= accepted(subject))
