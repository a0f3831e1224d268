"""The wrong tokens that trained models are inverted to: rare and repeated ones (003)."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from assay.claims.inversion.test_inversion import DOCUMENTED, NEEDS, OF_MODELS, cases_of
from assay.fixtures import sides
from assay.fixtures.inversions import invert
from assay.fixtures.sides import of_both_populations
from assay.fixtures.token_frequency import SOURCE, rarity
from assay.fixtures.trials import compared, record, repeats
from assay.harness.checking.findings import Bound, finding
from assay.harness.checking.measures import repeated_share
from assay.harness.checking.statistics import model_change, model_difference

TRAINED = ["trained", *NEEDS]

without_and_with_the_head = pytest.mark.parametrize(
    "way",
    [
        pytest.param(DOCUMENTED, id="as documented, one block"),
        pytest.param(replace(DOCUMENTED, through="head"), id="as documented, with head"),
    ],
)


@finding(
    "E13",
    "wrong tokens of trained models are rarer in text than those of untrained ones",
    needs=[*TRAINED, "tokenizer", "lm-head"],
    source="003, 'much less likely to exist in a real sentence'",
    bound=Bound(model_difference, above=0.0),
    control="the prompts' own tokens against tokens drawn evenly",
    draws=OF_MODELS,
    costly=True,
    slow=True,
)
@without_and_with_the_head
@of_both_populations
def test_wrong_tokens_of_a_trained_model_are_rarer(subject, population, way, draws, sample):
    cases, trained, fresh = inverted(subject, population, way, draws)
    effect = compared(trained, fresh, lambda trials: rarity_of_wrong_tokens(subject, trials))
    sample.add(effect=effect)
    columns = range(cases.ids.shape[1])
    evenly = torch.stack([draws.integers(0, subject.vocabulary, f"at {i}") for i in columns], 1)
    own, drawn = (rarity(subject, ids).mean(1) for ids in (cases.ids.cpu(), evenly))
    sample.add(control=[(x, side, 0) for side, of in ((1, own), (0, drawn)) for x in of.tolist()])
    sample.details["frequencies"] = SOURCE
    sample.details["prompts with wrong tokens, trained"] = int((effect[:, 1] == 1).sum())
    sample.details["prompts with wrong tokens, untrained"] = int((effect[:, 1] == 0).sum())
    record(sample, trained=trained, untrained=fresh)


def inverted(subject, population, way, draws):
    """The prompts, and their trials on trained and on untrained models."""
    way.target(subject).check(subject)
    compared_sides = sides.compared(subject, population)[:2]
    cases = cases_of(subject, draws)
    return cases, *(invert(side, way, cases) for side in compared_sides)


def rarity_of_wrong_tokens(subject, trials):
    """The mean `rarity` of the wrong tokens of each row; NaN where none is: [rows]."""
    tokens = trials.decoded()
    wrong = tokens != trials.ids
    return (rarity(subject, tokens) * wrong).sum(1) / wrong.sum(1)


@finding(
    "E14",
    "gibberish repeats",
    needs=[*TRAINED, "lm-head"],
    source="003, 'Representation Repetitions'",
    bound=Bound(model_change, above=0.0),
    control="what is found of untrained models",
    control_bound=Bound(model_change, at_most=0.1),
    draws=OF_MODELS,
    costly=True,
    slow=True,
)
@without_and_with_the_head
@of_both_populations
def test_gibberish_repeats(subject, population, way, draws, sample):
    cases, trained, fresh = inverted(subject, population, way, draws)
    usual = repeated_share(cases.ids, gram=1).cpu()
    wrong = (trained.decoded() != trained.ids).any(1)
    excess = torch.where(wrong, repeats(trained) - usual, 0.0)
    sample.add(effect=trained.by_model(excess))
    sample.add(control=fresh.by_model(repeats(fresh) - usual))
    sample.details["share of prompts with wrong tokens"] = float(wrong.double().mean())
    record(sample, trained=trained, untrained=fresh)
