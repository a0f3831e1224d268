"""Whether descent recovers a model's input from a block's output (document 003).

As documented: started from noise of mean 1/2 and scale 1/20, decoded by the pseudo-inverse.
Controlled: started from noise of mean 0 and the embedding's own scale, decoded by the nearest row.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import scipy
import torch

from assay.fixtures import sides, texts
from assay.fixtures.inversions import Cases, invert
from assay.fixtures.trials import curves, record, shown_text
from assay.fixtures.ways import Way
from assay.harness.checking import measures
from assay.harness.checking.bounds import Bound, NoDifference
from assay.harness.checking.findings import finding
from assay.harness.checking.statistics import model_change, model_mean

NEEDS = ["usual-weights", "inputs-embeds", "blocks"]

DOCUMENTED, SCALED = Way(), Way(begin="scaled")

DECIDING = 40
"""Draws that can decide a share of 0.9: with 36, all true, the interval begins there."""

OF_DEPTHS = 16
"""Draws that decide differences of half of the tokens, over six models."""

OF_MODELS = 60
"""The same for draws of several models, whose interval is the longer one of two."""

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
    bound=Bound(model_mean, at_least=0.8),
    control="a single step",
    costly=True,
)
@both_ways
def test_one_untrained_block_is_inverted(subject, way, draws, sample):
    cases, models = cases_of(subject, draws), sides.any_untrained(subject)
    long = invert(models, replace(way, steps=1000), cases)
    sample.add(effect=long.by_model(long.recovery()))
    sample.add(control=long.by_model(long.recovery(step=1)))
    record(sample, untrained=long)
    curves(sample, untrained=long)
    shown_text(sample, subject, long, "One untrained block, decoded")


@finding(
    "E3",
    "more of an untrained block is inverted in 1000 steps than in 100",
    needs=NEEDS,
    source="003, 'increasing the total iterations N further'",
    bound=Bound(model_change, above=0.0),
    control="a single step in place of 1000",
    costly=True,
    slow=True,
)
@both_ways
def test_more_is_inverted_in_1000_steps_than_in_100(subject, way, draws, sample):
    cases, models = cases_of(subject, draws), sides.any_untrained(subject)
    long, short = (invert(models, replace(way, steps=steps), cases) for steps in (1000, 100))
    sample.add(effect=long.by_model(long.recovery() - short.recovery()))
    sample.add(control=long.by_model(long.recovery(step=1) - short.recovery()))
    sample.add(after_100=short.recovery(), after_1000=long.recovery())


@finding(
    "E4",
    "depth makes inversion harder",
    needs=NEEDS,
    source="003, 'with an increase in the number of transformer blocks'",
    bound=Bound(model_change, below=0.0),
    control="one block from two starts",
    control_bound=NoDifference(model_change),
    draws=OF_DEPTHS,
    costly=True,
    slow=("controlled",),
)
@both_ways
def test_depth_makes_inversion_harder(subject, way, draws, sample):
    cases, models = cases_of(subject, draws), sides.untrained(subject)
    one, all_ = (invert(models, replace(way, depth=k), cases) for k in (1, subject.layers))
    sample.add(effect=one.by_model(all_.recovery() - one.recovery()))
    sample.add(control=of_two_starts(models, way, cases))
    record(sample, one_block=one, all_blocks=all_)
    curves(sample, one_block=one, all_blocks=all_)


def of_two_starts(models, way, cases):
    """By how much more is recovered from one start than from another: [rows, 2] with models."""
    one, other = (invert(models, replace(way, seed=seed), cases) for seed in (0, 1))
    return one.by_model(other.recovery() - one.recovery())


def at_least(count, draws):
    """The draws of a costly finding, and as many more as make ``count``."""
    return replace(draws, numbers=range(max(count, len(draws))))


@finding(
    "E4",
    "the deeper, the less is recovered",
    needs=NEEDS,
    source="003, 'with an increase in the number of transformer blocks'",
    bound=Bound(model_change, below=0.0),
    control="one block from as many starts as there are depths",
    control_bound=NoDifference(model_change),
    draws=OF_DEPTHS,
    costly=True,
)
def test_the_deeper_the_less_is_recovered(subject, draws, sample):
    cases, models, depths = (
        cases_of(subject, draws),
        sides.untrained(subject),
        some_depths(subject),
    )
    deeper = [invert(models, replace(DOCUMENTED, depth=depth), cases) for depth in depths]
    starts = [invert(models, replace(DOCUMENTED, seed=i), cases) for i in range(len(depths))]
    shares, flat = (
        torch.stack([trials.recovery() for trials in each], dim=1) for each in (deeper, starts)
    )
    sample.add(effect=deeper[0].by_model(order_of(shares, depths)))
    sample.add(control=deeper[0].by_model(order_of(flat, depths)))
    points = list(zip(depths, shares.mean(0).tolist(), strict=True))
    sample.plot("Recovery over depth", "curves", {"untrained": points}, x="blocks", y="recovery")


MANY_DEPTHS = 3
"""Depths to compare, from one block to all."""


def some_depths(subject, most=MANY_DEPTHS):
    """At most ``most`` numbers of blocks at even intervals, with the first and the last."""
    evenly = torch.linspace(1, subject.layers, most).round().int()
    return sorted(set(evenly.tolist()))


def order_of(values, order):
    """Spearman's correlation of each row of ``values`` [rows, k] with ``order`` [k]: [rows].

    0 where all values are the same, or all of ``order``.
    """
    if len(set(order)) == 1:
        return torch.zeros(len(values), dtype=torch.float64)
    rows = values.tolist()
    correlations = [
        scipy.stats.spearmanr(order, row).statistic if len({*row}) > 1 else 0.0 for row in rows
    ]
    return torch.tensor(correlations, dtype=torch.float64)


@finding(
    "E5",
    "at full depth with the head, what is found gives the right next token",
    needs=[*NEEDS, "causal", "lm-head"],
    source="003, 'the full 12 transformer blocks … followed by the language modeling head'",
    bound=Bound(model_mean, at_least=0.9),
    control="what was found for another prompt",
    costly=True,
    slow=True,
)
@both_ways
def test_what_is_found_gives_the_right_next_token(subject, way, draws, sample):
    trials, side = through_the_head(subject, way, draws)
    right, other = trials.ids, trials.decoded()
    same, by_luck = (same_next_token(side.models, right, ids) for ids in (other, other.roll(1, 0)))
    sample.add(effect=trials.by_model(same), control=trials.by_model(by_luck))
    record(sample, untrained=trials)


@finding(
    "E5",
    "at full depth with the head, what is found is not the input",
    needs=[*NEEDS, "causal", "lm-head"],
    source="003, 'the full 12 transformer blocks … followed by the language modeling head'",
    bound=Bound(model_mean, below=0.5),
    control="one block without the head, after 1000 steps",
    costly=True,
    slow=True,
)
@both_ways
def test_what_is_found_is_not_the_input(subject, way, draws, sample):
    trials, side = through_the_head(subject, way, draws)
    easy = invert(side, replace(way, steps=1000), cases_of(subject, draws))
    sample.add(effect=trials.by_model(trials.recovery()))
    sample.add(control=easy.by_model(easy.recovery()))
    record(sample, all_blocks_and_head=trials)
    shown_text(sample, subject, trials, "All untrained blocks and the head, decoded")


def through_the_head(subject, way, draws):
    """Trials on all untrained blocks and the head, and their side."""
    side = sides.untrained(subject)
    way = replace(way, depth=subject.layers, through="head")
    way.target(subject).check(subject)
    return invert(side, way, cases_of(subject, draws)), side


def same_next_token(models, one, other):
    """Whether each row's model, i modulo their number, has the same likeliest next token."""
    same = one.new_zeros(len(one), dtype=bool)
    for i, model in enumerate(models):
        rows = slice(i, None, len(models))
        if len(one[rows]):
            subject = sides.awake(model)
            pair = (ids[rows].to(subject.device) for ids in (one, other))
            p, q = (measures.next_token(subject, ids) for ids in pair)
            same[rows] = measures.same_top(p, q).cpu()
    return same
