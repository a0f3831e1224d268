"""Walks that move part of the input while the rest restores the output (document 003)."""

from __future__ import annotations

import pytest
import torch

from assay.fixtures import texts
from assay.fixtures.clamped_walks import (
    CHANGED,
    CLAMPS_OF_MANY,
    MANY,
    TOKENS,
    curves,
    note,
    unlike,
    walked,
)
from assay.harness.checking import measures
from assay.harness.checking.findings import Bound, finding
from assay.harness.checking.statistics import median, share
from assay.harness.inversion import decode

DRAWS = 32
"""Prompts to start with: each walk costs dozens of passes."""

FEW = 12
"""Prompts where a walk costs hundreds of passes."""

NEARLY_100 = 90.0
"""Our reading of 'nearly 100 or more'."""

TEN = 10.0
"""The document's r for a walk that keeps the output."""

ABOUT_1 = Bound(median, at_least=0.8, at_most=1.25)

NEEDS = ["usual-weights", "inputs-embeds", "blocks"]


@finding(
    "F6",
    "the clamped walk moves the input ten times as far as the output",
    needs=NEEDS,
    source="003, clamped walk",
    bound=Bound(median, at_least=10.0),
    control="no descent step",
    draws=DRAWS,
    most=2 * DRAWS,
)
def test_the_clamped_walk_keeps_the_output(subject, draws, sample):
    walk, still = (walked(subject, draws, descents=count) for count in (1, 0))
    sample.add(effect=walk.r, control=still.r, over_that_of_a_random_step=walk.over_random)
    curves(sample, {"one step of descent": walk, "none": still})


@finding(
    "F6",
    "fifty steps of descent for each clamp keep the output better than one",
    needs=NEEDS,
    source="003, clamped walk: 'from one to fifty'",
    bound=Bound(median, above=1.0),
    control="no descent step",
    draws=FEW,
    costly=True,
)
def test_more_steps_of_descent_keep_the_output_better(subject, draws, sample):
    many, one, none = (walked(subject, draws, descents=count) for count in (MANY, 1, 0))
    before, still = one.r_after(CLAMPS_OF_MANY), none.r_after(CLAMPS_OF_MANY)
    sample.add(effect=many.r / before, control=still / before)
    sample.add(r=many.r, r_is_nearly_100=many.r >= NEARLY_100)
    curves(sample, {f"{MANY} steps of descent": many, "one": one, "none": none})


@finding(
    "F7",
    "the clamped walk keeps the output better than a random step of the same size",
    needs=NEEDS,
    source="003, clamped walk, controlled for what any step keeps",
    bound=Bound(median, above=1.0),
    control="another random step of the same size: about 1",
    control_bound=ABOUT_1,
    draws=DRAWS,
)
def test_the_clamped_walk_keeps_more_than_a_random_step(subject, draws, sample):
    walk = walked(subject, draws, best="over random")
    sample.add(effect=walk.over_random, control=walk.random_again / walk.random, r=walk.r)
    sample.add(without_descent=walked(subject, draws, "over random", descents=0).over_random)
    note(sample, {"model": walk})


@finding(
    "F8",
    "the clamped walk keeps the output of a fully connected net less well",
    needs=NEEDS,
    source="003, clamped walk: r of at most 3",
    bound=Bound(median, below=1.0),
    control="the model again, on the next prompt: about 1",
    control_bound=ABOUT_1,
    draws=DRAWS,
)
def test_the_clamped_walk_keeps_a_net_s_output_less_well(subject, draws, sample):
    walk, net = (walked(subject, draws, of=of) for of in ("model", "net"))
    sample.add(effect=net.r / walk.r, control=walk.r.roll(1) / walk.r)
    sample.add(r_of_the_net=net.r, r=walk.r)
    curves(sample, {"model": walk, "net": net})


@finding(
    "F8",
    "the clamped walk moves the input at most three times as far as a net's output",
    needs=NEEDS,
    source="003, clamped walk: 'generally does not yield an r > 3'",
    bound=Bound(median, at_most=3.0),
    control="the same nets with outputs a hundredth as large",
    draws=DRAWS,
)
def test_r_of_a_net_is_at_most_3(subject, draws, sample):
    net = walked(subject, draws, of="net")
    shrunk = walked(subject, draws, of="shrunken net")
    sample.add(effect=net.r, control=shrunk.r, over_that_of_a_random_step=net.over_random)
    note(sample, {"net": net})


@finding(
    "F8",
    "over a random step, the clamped walk gains less on a fully connected net",
    needs=NEEDS,
    source="003, clamped walk, controlled for what any step keeps",
    bound=Bound(median, below=1.0),
    control="the model again, on the next prompt: about 1",
    control_bound=ABOUT_1,
    draws=DRAWS,
)
def test_the_clamped_walk_gains_less_on_a_net(subject, draws, sample):
    walk, net = (walked(subject, draws, "over random", of) for of in ("model", "net"))
    gain = walk.over_random
    sample.add(effect=net.over_random / gain, control=gain.roll(1) / gain)
    sample.add(gain=gain, gain_on_the_net=net.over_random)
    note(sample, {"model": walk, "net": net})


both_ways = pytest.mark.parametrize(
    ("decoder", "keeps"),
    [
        pytest.param("pseudo-inverse", lambda r, random: r >= TEN, id="as documented"),
        pytest.param("nearest", lambda r, random: r >= 2 * random, id="controlled"),
    ],
)
"""The decoder, and when a walk keeps the output: the document's r, or twice a random step's."""


@finding(
    "F9",
    "a clamped walk that keeps the output ends in other tokens",
    needs=NEEDS,
    source="003, clamped walk: 'such that the e_N corresponds to different input tokens'",
    bound=Bound(share, at_least=0.5),
    control="a random step of the same size",
    draws=DRAWS,
    most=4 * DRAWS,
    slow=("controlled",),
)
@both_ways
def test_a_clamped_walk_ends_in_other_tokens(subject, decoder, keeps, draws, sample):
    walk = walked(subject, draws, best=decoder)
    still = unlike(subject, walk.start, walk.ids, decoder)
    changed, by_chance = (
        unlike(subject, x, walk.ids, decoder) for x in (walk.end, walk.displaced)
    )
    sample.add(effect=(changed >= CHANGED) & keeps(walk.r, walk.random).cpu())
    sample.add(control=(by_chance >= CHANGED) & keeps(walk.random_again, walk.random).cpu())
    sample.add(changed_at_the_start=still, changed=changed, r=walk.r, r_of_a_step=walk.random)
    sample.add(output_kept=keeps(walk.r, walk.random))
    note(sample, {"model": walk})


@finding(
    "F9",
    "a clamped walk that keeps the output ends in tokens that repeat",
    needs=NEEDS,
    source="003, clamped walk and 'representation repetitions'",
    bound=Bound(share, at_least=0.5),
    control="tokens drawn at random in the place of the new ones",
    draws=DRAWS,
)
@both_ways
def test_a_clamped_walk_ends_in_tokens_that_repeat(subject, decoder, keeps, draws, sample):
    walk = walked(subject, draws, best=decoder)
    ids, now = walk.ids, decode(subject, walk.end, decoder)
    drawn = torch.where(now == ids, ids, texts.random(subject, draws, TOKENS))
    before, after, control = (measures.repeated_share(each, gram=1) for each in (ids, now, drawn))
    output_kept = keeps(walk.r, walk.random).cpu()
    sample.add(effect=(after > before) & output_kept, control=(control > before) & output_kept)
    random = decode(subject, walk.displaced, decoder)
    sample.add(repeated=after, repeated_in_the_prompt=before, output_kept=output_kept)
    sample.add(repeated_after_a_random_step=measures.repeated_share(random, gram=1))
    sample.details["an example"] = [subject.tokens(each[0].tolist()) for each in (ids, now)]
