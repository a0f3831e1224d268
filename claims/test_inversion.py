"""Whether a model's input can be had back from a block's output by descent (document 003).

As documented: started from noise of mean 1/2 and scale 1/20, decoded by the pseudo-inverse.
Controlled: started from noise of mean 0 and the embedding's own scale, decoded by the nearest row.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from fixtures import inversions, texts
from fixtures.inversions import Cases, invert
from fixtures.trials import curves, record, shown_text
from fixtures.ways import Way
from harness import measures
from harness.findings import Bound, finding
from harness.statistics import mean, rank_correlation, share

NEEDS = ["usual-weights", "inputs-embeds", "blocks"]

DOCUMENTED, SCALED = Way(), Way(begin="scaled")

DECIDING = 40
"""Draws that can decide a share of 0.9: with 36 that are all true the interval begins there."""

ABOUT_0 = Bound(mean, at_least=-0.1, at_most=0.1)
"""Of a difference in recovery between what is alike but for a seed."""

both_ways = pytest.mark.parametrize(
    "way",
    [pytest.param(DOCUMENTED, id="as documented"), pytest.param(SCALED, id="controlled")],
)


def cases_of(subject, draws):
    """Held-out text where the subject has a tokenizer, random tokens otherwise."""
    source = texts.RANDOM if subject.tokenizer is None else texts.TEXT
    return Cases.of(subject, source, draws)


@finding(
    "E3",
    "one untrained block is inverted",
    needs=NEEDS,
    source="003, 'Language models translate nonsense into sense', N ≥ 1000",
    bound=Bound(mean, at_least=0.8),
    control="a single step",
    costly=True,
)
@both_ways
def test_one_untrained_block_is_inverted(subject, way, draws, sample):
    cases, models = cases_of(subject, draws), inversions.untrained(subject, len(draws))
    long = invert(models, replace(way, steps=1000), cases)
    sample.add(effect=long.recovery(), control=long.recovery(step=1))
    record(sample, untrained=long)
    curves(sample, untrained=long)
    shown_text(sample, subject, long, "One untrained block, decoded")


@finding(
    "E3",
    "more of an untrained block is inverted in 1000 steps than in 100",
    needs=NEEDS,
    source="003, 'increasing the total iterations N further'",
    bound=Bound(mean, above=0.0),
    control="100 steps from another start",
    control_bound=ABOUT_0,
    costly=True,
)
@both_ways
def test_more_is_inverted_in_1000_steps_than_in_100(subject, way, draws, sample):
    cases, models = cases_of(subject, draws), inversions.untrained(subject, len(draws))
    long, short = (invert(models, replace(way, steps=steps), cases) for steps in (1000, 100))
    other = invert(models, replace(way, steps=100, seed=1), cases, short.rates[0])
    sample.add(effect=long.recovery() - short.recovery())
    sample.add(control=other.recovery() - short.recovery())
    sample.add(after_100=short.recovery(), after_1000=long.recovery())


@finding(
    "E4",
    "depth makes inversion harder",
    needs=NEEDS,
    source="003, 'with an increase in the number of transformer blocks'",
    bound=Bound(mean, below=0.0),
    control="one block from another start",
    control_bound=ABOUT_0,
    costly=True,
)
@both_ways
def test_depth_makes_inversion_harder(subject, way, draws, sample):
    cases, models = cases_of(subject, draws), inversions.untrained(subject, len(draws))
    one, all_ = (invert(models, replace(way, depth=depth), cases) for depth in (1, -1))
    again = invert(models, replace(way, seed=1), cases, one.rates[0])
    sample.add(effect=all_.recovery() - one.recovery())
    sample.add(control=again.recovery() - one.recovery())
    record(sample, one_block=one, all_blocks=all_)
    curves(sample, one_block=one, all_blocks=all_)


@finding(
    "E4",
    "the deeper, the less is recovered",
    needs=NEEDS,
    source="003, 'with an increase in the number of transformer blocks'",
    bound=Bound(rank_correlation, below=0.0),
    control="one block whatever the depth that is named",
    control_bound=Bound(rank_correlation, at_least=-0.6, at_most=0.6),
    draws=DECIDING,
    costly=True,
)
def test_the_deeper_the_less_is_recovered(subject, draws, sample):
    cases, models, way = (
        cases_of(subject, draws),
        inversions.untrained(subject, len(draws)),
        DOCUMENTED,
    )
    one = invert(models, way, cases).recovery()
    pairs, controls, points = [], [], []
    for depth in range(1, subject.layers + 1):
        mine = list(range(depth - 1, len(cases.ids), subject.layers))
        found = invert(models, replace(way, depth=depth), cases.some(mine)).recovery()
        pairs += [(depth, share) for share in found.tolist()]
        controls += [(depth, share) for share in one[mine].tolist()]
        points.append((depth, float(found.mean())))
    sample.add(effect=pairs, control=controls)
    sample.plot("Recovery over depth", "curves", {"untrained": points}, x="blocks", y="recovery")


@finding(
    "E5",
    "at full depth with the head, what is found gives the right next token",
    needs=[*NEEDS, "causal", "lm-head"],
    source="003, 'the full 12 transformer blocks … followed by the language modeling head'",
    bound=Bound(share, at_least=0.9),
    control="what was found for another prompt",
    draws=DECIDING,
    costly=True,
)
@both_ways
def test_what_is_found_gives_the_right_next_token(subject, way, draws, sample):
    found, models = through_the_head(subject, way, draws)
    right, other = found.ids, found.decoded()
    sample.add(
        effect=same_next_token(models, right, other),
        control=same_next_token(models, right, other.roll(1, 0)),
    )
    record(sample, untrained=found)


@finding(
    "E5",
    "at full depth with the head, what is found is not the input",
    needs=[*NEEDS, "causal", "lm-head"],
    source="003, 'the full 12 transformer blocks … followed by the language modeling head'",
    bound=Bound(mean, below=0.5),
    control="one block without the head, after 1000 steps",
    costly=True,
)
@both_ways
def test_what_is_found_is_not_the_input(subject, way, draws, sample):
    found, models = through_the_head(subject, way, draws)
    easy = invert(models, replace(way, steps=1000), cases_of(subject, draws))
    sample.add(effect=found.recovery(), control=easy.recovery())
    record(sample, all_blocks_and_head=found)
    shown_text(sample, subject, found, "All untrained blocks and the head, decoded")


def through_the_head(subject, way, draws):
    """All untrained blocks and the head inverted, and the models that they are of."""
    models = inversions.untrained(subject, len(draws))
    way = replace(way, depth=-1, through="head")
    return invert(models, way, cases_of(subject, draws)), models


def same_next_token(models, one, other):
    """Whether model i modulo their number gives rows i the same most probable next token."""
    same = one.new_zeros(len(one), dtype=bool)
    for i, model in enumerate(models):
        rows = slice(i, None, len(models))
        p, q = (measures.next_token(model, ids[rows].to(model.device)) for ids in (one, other))
        same[rows] = measures.same_top(p, q).cpu()
    return same
