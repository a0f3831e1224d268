"""Whether nonsense inputs have a sentence's output, and what is near its state (003)."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from assay.claims.inversion.test_inversion import DOCUMENTED, NEEDS, cases_of
from assay.fixtures import sides, texts
from assay.fixtures.inversions import invert
from assay.fixtures.neighbours import neighbours
from assay.fixtures.nonsense import ALIKE, least_kl, nonsense, random_prompts
from assay.fixtures.sides import of_both_populations
from assay.harness.checking.findings import Bound, finding
from assay.harness.checking.statistics import model_mean
from assay.harness.inversion import Target, accepted
from assay.harness.models.capabilities import Missing

ALL_BLOCKS = replace(DOCUMENTED, depth=-1)
"""The descents of E6, so that a run of both computes them once."""


@finding(
    "E27",
    "for most prompts, descent finds nonsense that trained models continue alike",
    needs=["trained", *NEEDS, "causal", "lm-head"],
    source="003, 'one can find many completely nonsensical inputs that also yield an identical "
    "output'",
    # The document says 'one can find' of any input: 'most' is the least that it can mean.
    bound=Bound(model_mean, at_least=0.5),
    control="as many prompts of random tokens, and the prompt itself",
    draws=15,
    costly=True,
)
@of_both_populations
def test_nonsense_has_the_output_of_a_prompt(subject, population, draws, sample):
    cases, (trained, *_) = cases_of(subject, draws), sides.compared(subject, population)
    trials = invert(trained, ALL_BLOCKS, cases)
    candidates, itself = nonsense(trials), trials.ids[:, None]
    random = random_prompts(subject, draws, *candidates.shape[1:]).cpu()
    least, by_luck = (
        least_kl(trials, each) for each in (candidates, torch.cat([random, itself], 1))
    )
    sample.add(effect=trials.by_model(least <= ALIKE), control=trials.by_model(by_luck <= ALIKE))
    sample.add(least_kl=least)


APART = 0.05
"""Distance of a point from the state, relative to the state's norm."""

PROMPTS, POINTS = 8, 8
"""Prompts at first, and points around the state of each: 64 equal outcomes decide 0.9."""


@finding(
    "E28",
    "most points near a state are the state of no prompt",
    needs=["causal", "blocks", "inputs-embeds"],
    source="003, 'most nearby points correspond to inputs that are not even approximately "
    "sentences'",
    bound=Bound(model_mean, at_least=0.9),
    control="the state itself",
    draws=PROMPTS,
    costly=True,
)
@pytest.mark.parametrize("depth", ["one block", "half of the blocks", "all blocks"])
def test_points_near_a_state_are_the_state_of_no_prompt(subject, depth, draws, sample):
    if (tolerance := accepted(subject)) >= APART:
        raise Missing(f"a dtype in which states {APART} apart differ: {tolerance:g} is tolerated")
    blocks = {"one block": 1, "half of the blocks": (subject.layers + 1) // 2}
    target = Target(blocks.get(depth, subject.layers))
    source = texts.RANDOM if subject.tokenizer is None else texts.TEXT
    for prompts in texts.prompts(subject, source, draws, (4, 5, 6)):
        away = APART * directions(subject, target, prompts.draws)
        search = neighbours(subject, target, prompts.ids, torch.cat([away, 0 * away], dim=1))
        none = (search.distances > tolerance).split(POINTS, dim=1)
        effect, control = (by_prompt(each, prompts) for each in none)
        sample.add(effect=effect, control=control, margin=search.margin)
        nearest = search.tokens[:, :POINTS] == prompts.ids[:, -1:].cpu()
        sample.add(nearest_is_the_prompt=nearest.flatten())


def directions(subject, target, draws):
    """`POINTS` random directions for each draw: [draws, points, features], of norm 1."""
    normal = draws.normal(POINTS, target.features(subject), purpose="direction")
    return torch.nn.functional.normalize(normal, dim=-1)


def by_prompt(values, prompts):
    """``values`` [prompts, points] with the number of the prompt: its points share a prefix."""
    numbers = torch.tensor(list(prompts.draws), dtype=torch.float64)[:, None].expand_as(values)
    return torch.stack([values.double(), numbers], dim=-1).flatten(0, 1)
