"""Toys of three tokens, trained from many seeds: what needs positions, and what only time (001).

A draw is one seed.  Only the device of the subject `toy` is used.
"""

from __future__ import annotations

import pytest

from assay.harness.checking.findings import Bound, finding
from assay.harness.checking.statistics import mean, share
from assay.harness.operations import trigram
from assay.harness.operations.trigram import Variant

DRAWS = 128
"""Seeds trained at once: an interval of their share can clear 0.05, 0.9 and 0.95."""

ALONE = Variant(residual=False)
"""The document's toy: 'only self-attention layer and no positional encoding'."""

ORDER = ("A B hit",)
"""The only training sentences of a toy that is tested on them alone."""


@finding(
    "B5",
    "two causal layers learn to tell 'A B hit' from 'B A hit' without positions",
    source="001, answer 3; Haviv et al. 2022, Kazemnejad et al. 2023",
    bound=Bound(share, at_least=0.95),
    control="one layer",
    draws=DRAWS,
    most=DRAWS,
    block=DRAWS,
    toy=True,
    slow=True,
)
def test_two_causal_layers_learn_order_without_positions(subject, draws, sample):
    seeds = trigram.seeds(draws)
    two = trigram.train(Variant(layers=2), seeds, device=subject.device, tasks=ORDER)["A B hit"]
    one = trigram.train(Variant(layers=1), seeds, device=subject.device)["A B hit"]
    sample.add(effect=two[2000], control=one[2000])
    trigram.record(sample, {"two layers": two, "one layer": one})


@finding(
    "B6",
    "'A hit B !' and 'B hit A ?' are learnable without positions",
    source="001, question and comment to answer 1",
    bound=Bound(share, above=0.9),
    control="'A B hit ?' and 'B A hit !'",
    draws=DRAWS,
    most=DRAWS,
    block=DRAWS,
    toy=True,
)
@pytest.mark.parametrize(
    "toy",
    [pytest.param(ALONE, id="attention alone"), pytest.param(Variant(), id="with a residual")],
)
def test_a_hit_b_is_learnable_without_positions(subject, toy, draws, sample):
    learned = trigram.train(toy, trigram.seeds(draws), device=subject.device)
    sample.add(effect=learned["A hit B"][500], control=learned["A B hit"][500])
    trigram.record(sample, learned)


@finding(
    "B7",
    "'A B hit ?' and 'B A hit !' are not learnable without positions",
    source="001, answer 3",
    bound=Bound(share, at_most=0.05),
    control="'A hit B !' and 'B hit A ?'",
    draws=DRAWS,
    most=DRAWS,
    block=DRAWS,
    toy=True,
)
@pytest.mark.parametrize(
    ("toy", "steps"),
    [
        pytest.param(Variant(), trigram.STEPS, id="one layer"),
        pytest.param(Variant(causal=False), trigram.SHORT, id="one layer without a mask"),
        pytest.param(
            Variant(layers=2, causal=False), trigram.SHORT, id="two layers without a mask"
        ),
    ],
)
def test_a_b_hit_is_not_learnable_without_positions(subject, toy, steps, draws, sample):
    # Judged after as many steps as the sentences of the control take; B6 continues with one layer.
    learned = trigram.train(toy, trigram.seeds(draws), steps, subject.device)
    sample.add(effect=learned["A B hit"][500], control=learned["A hit B"][500])
    trigram.record(sample, learned)


@finding(
    "B7",
    "'A B hit ?' and 'B A hit !' are learnable with positions or two causal layers",
    source="001, answer 3",
    bound=Bound(share, above=0.9),
    control="one layer without positions",
    draws=DRAWS,
    most=DRAWS,
    block=DRAWS,
    toy=True,
)
@pytest.mark.parametrize(
    ("toy", "steps"),
    [
        pytest.param(Variant(positions=True), trigram.SHORT, id="positions"),
        pytest.param(Variant(layers=2), trigram.STEPS, id="two causal layers"),
    ],
)
def test_a_b_hit_is_learnable_with_positions_or_two_causal_layers(
    subject, toy, steps, draws, sample
):
    seeds = trigram.seeds(draws)
    learned = trigram.train(toy, seeds, steps, subject.device, ORDER)["A B hit"]
    neither = trigram.train(Variant(), seeds, device=subject.device)["A B hit"]
    sample.add(effect=learned[max(steps)], control=neither[max(steps)])
    trigram.record(sample, {"this toy": learned, "one layer without positions": neither})


@finding(
    "B8",
    "a head narrower than the context learns 'A hit B' later",
    source="001, answer 2",
    bound=Bound(mean, below=0.0),
    control="two wide heads of unlike seeds",
    control_bound=Bound(mean, at_least=-0.1),
    draws=256,
    block=256,
    toy=True,
)
def test_a_head_narrower_than_the_context_learns_later(subject, draws, sample):
    def after_100_steps(head, purpose=""):
        # No residual: the last token would go round the head, however narrow.
        toy = Variant(head=head, residual=False)
        seeds, task = trigram.seeds(draws, purpose), "A hit B"
        learned = trigram.train(toy, seeds, (100,), subject.device, (task,))
        return learned[task][100].double()

    narrow, wide, other = after_100_steps(2), after_100_steps(8), after_100_steps(8, "other")
    sample.add(effect=narrow - wide, control=other - wide, narrow=narrow, wide=wide)


@finding(
    "B8",
    "a head narrower than the context learns 'A hit B' in the end",
    source="001, comment to answer 2",
    bound=Bound(share, at_least=0.9),
    control="'A B hit ?' and 'B A hit !'",
    draws=DRAWS,
    most=DRAWS,
    block=DRAWS,
    toy=True,
)
def test_a_head_narrower_than_the_context_learns_in_the_end(subject, draws, sample):
    toy = Variant(head=2, residual=False)
    learned = trigram.train(toy, trigram.seeds(draws), device=subject.device)
    sample.add(effect=learned["A hit B"][2000], control=learned["A B hit"][2000])
    trigram.record(sample, learned)


@finding(
    "B9",
    "whether 'A hit B' is learned in few steps depends on the seed",
    source="001, answer 2",
    bound=Bound(share, at_least=0.05, at_most=0.95),
    control="'A B hit ?' and 'B A hit !', which no seed learns",
    draws=DRAWS,
    most=DRAWS,
    block=DRAWS,
    toy=True,
)
def test_success_in_few_steps_depends_on_the_seed(subject, draws, sample):
    step = trigram.half_learned(ALONE, "A hit B", draws, subject.device)
    learned = trigram.train(ALONE, trigram.seeds(draws), device=subject.device)
    sample.add(effect=learned["A hit B"][step], control=learned["A B hit"][step])
    sample.details["steps"] = step
    trigram.record(sample, learned)


@finding(
    "B10",
    "the '?' of 'A hit B' comes out right more often than the '!'",
    source="001, answer 2: 'I also seem to get ? for the second one more often than !'",
    bound=Bound(mean, above=0.0),
    control="the answers exchanged: if one of the prompts is learned before the other, the sign "
    "turns",
    control_bound=Bound(mean, at_most=0.1),
    draws=256,
    most=256,
    block=256,
    toy=True,
)
def test_the_question_mark_is_right_more_often(subject, draws, sample):
    step = trigram.half_learned(ALONE, "A hit B", draws, subject.device)
    usual, swapped = (
        trigram.question_less_exclamation(ALONE, trigram.seeds(draws), step, subject.device, task)
        for task in ("A hit B", "A hit B, swapped")
    )
    sample.add(effect=usual, control=swapped)
    sample.details["steps"] = step
