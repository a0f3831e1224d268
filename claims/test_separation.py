"""How far apart the states of different tokens are, and what quantising activations leaves."""

from __future__ import annotations

import pytest
import torch

from assay.fixtures import texts
from assay.fixtures.neighbours import rivals
from assay.harness.checking.findings import Bound, finding
from assay.harness.checking.statistics import share
from assay.harness.operations.inversion import Target
from assay.harness.operations.inversion.candidates import accepted

DRAWS = 4608
"""So many equal outcomes decide a share of 0.999."""

BLOCK = 512
LENGTHS = (4,)

RIVALS = 4
"""Other tokens whose states are compared: those that a linear map expects to be nearest."""

depths = pytest.mark.parametrize("depth", ["one block", "half of the blocks", "all blocks"])


def target_of(subject, depth):
    """The output of the named blocks."""
    blocks = {"one block": 1, "half of the blocks": (subject.layers + 1) // 2}
    return Target(blocks.get(depth, subject.layers))


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
    for prompts in texts.prompts(subject, texts.RANDOM, draws, LENGTHS):
        found = rivals(subject, target_of(subject, depth), prompts.ids, RIVALS)
        nearest = found.distances.min(1)
        slope = nearest.values * found.size / found.apart.gather(1, nearest.indices[:, None])[:, 0]
        sample.add(effect=nearest.values > tolerance, control=found.itself > tolerance)
        sample.add(margin=nearest.values, slope=slope)
    sample.details["rivals"] = RIVALS
    sample.details["tolerance"] = tolerance


def quantised(states, bits):
    """``states`` [..., f] as integers of ``bits``, each state by its largest absolute value."""
    most = 2 ** (bits - 1) - 1
    scale = states.abs().amax(-1, keepdim=True).clamp_min(torch.finfo(states.dtype).tiny)
    return (states / scale * most).round()


def collided(found, bits):
    """Whether another token's state is the same in ``bits``: [rows]."""
    own, others = quantised(found.own, bits), quantised(found.others, bits)
    return (own[:, None] == others).all(-1).any(1)


@finding(
    "E30",
    "no states of different tokens are the same in 8 bits",
    needs=["causal", "blocks", "inputs-embeds"],
    source="arXiv 2511.14808",
    bound=Bound(share, at_most=0.001),
    control="the token itself as the other one",
    draws=DRAWS,
    most=2 * DRAWS,
    block=BLOCK,
)
def test_no_states_of_different_tokens_are_the_same_in_8_bits(subject, draws, sample):
    for prompts in texts.prompts(subject, texts.RANDOM, draws, LENGTHS):
        found = rivals(subject, Target(subject.layers), prompts.ids, RIVALS)
        itself = quantised(found.own, 8) == quantised(found.again, 8)
        sample.add(effect=collided(found, 8), control=itself.all(-1))


@finding(
    "E30",
    "some states of different tokens are the same in 4 bits",
    needs=["causal", "blocks", "inputs-embeds"],
    source="arXiv 2511.14808",
    bound=Bound(share, above=0.0),
    control="states that are not quantised",
    control_bound=Bound(share, at_most=0.001),
    draws=DRAWS,
    most=2 * DRAWS,
    block=BLOCK,
)
def test_some_states_of_different_tokens_are_the_same_in_4_bits(subject, draws, sample):
    for prompts in texts.prompts(subject, texts.RANDOM, draws, LENGTHS):
        found = rivals(subject, Target(subject.layers), prompts.ids, RIVALS)
        same = found.distances.min(1).values <= accepted(subject)
        sample.add(effect=collided(found, 4), control=same)
