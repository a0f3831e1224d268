"""What inversion by descent depends on: head, precision, distance, start, schedule (003)."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from assay.claims.inversion.test_inversion import DECIDING, DOCUMENTED, NEEDS, both_ways, cases_of
from assay.fixtures import inversions
from assay.fixtures.inversions import invert
from assay.fixtures.trials import curves, record, repeats, survival, times_as_many
from assay.harness.checking.findings import Bound, finding
from assay.harness.checking.statistics import (
    bounded_change,
    censored_median,
    mean,
    rank_correlation,
)
from assay.harness.inversion import Target, condition, head_inverse, jacobian
from assay.harness.models.capabilities import Missing
from assay.harness.models.machine.symmetric import decomposition
from assay.harness.models.reference.float64 import reference_of
from assay.harness.operations.factors import gram

TRAINED = ["trained", *NEEDS]

CLOSE = replace(DOCUMENTED, measure="close")
"""Learning rates are chosen by how soon (4) is met, where a descent ends."""

LATE = 400
"""Steps of the side that is expected to be fast."""

TIMES, ROOM = 100.0, 1.1
"""The claimed ratio of steps, and the extra room of the other side."""


@finding(
    "E7",
    "the head makes (4) take over a hundred times as many steps in this trained block",
    needs=[*TRAINED, "lm-head"],
    source="003, 'removing the language modeling head reduces the number of iterations'",
    bound=Bound(censored_median, above=TIMES),
    control="no head, from two starts",
    draws=12,
    costly=True,
)
@pytest.mark.parametrize(
    ("way", "shared"),
    [
        pytest.param(CLOSE, True, id="as documented, one step size"),
        pytest.param(CLOSE, False, id="each its best step size"),
        pytest.param(replace(CLOSE, begin="scaled"), False, id="controlled"),
    ],
)
def test_the_head_is_a_gradient_bottleneck(subject, way, shared, draws, sample):
    cases, way = cases_of(subject, draws), replace(way, steps=LATE)
    bare = invert(subject, way, cases)
    head = replace(way, through="head", steps=horizon(bare))
    head.target(subject).check(subject)
    through = invert(subject, head, cases, size_of(subject, way, head, cases) if shared else None)
    again = invert(subject, replace(way, seed=1), cases, bare.rates[0])
    sample.add(effect=times_as_many(through, bare), control=times_as_many(again, bare))
    sample.add(steps_with_head=through.steps_to_close, steps_without=bare.steps_to_close)
    record(sample, with_head=through, without=bare)
    survival(sample, with_head=through, without=bare)
    curves(sample, with_head=through, without=bare)


def horizon(fast):
    """Steps after which a descent has taken `TIMES` as many as four in five of the ``fast``."""
    return int(ROOM * TIMES * float(fast.steps_to_close.quantile(0.8))) + 1


def size_of(subject, way, other, cases):
    """The learning rate that is best for ``way``, in the units of the ``other``."""
    best = inversions.tuned(subject, way, cases)
    units = [inversions.unit_of(subject, each, cases) for each in (way, other)]
    return best * units[0] / units[1]


@finding(
    "E8",
    "precision is not why (4) takes long: float64 takes as many steps as float32",
    needs=[*TRAINED, "lm-head"],
    source="003, 'convert both the model and inputs in question to torch.double()'",
    bound=Bound(censored_median, at_least=0.8, at_most=1.25),
    control="a hundredth of the step size",
    draws=9,
    costly=True,
    slow=("as documented-head",),
)
@pytest.mark.parametrize("through", ["block", "head"])
@both_ways
def test_precision_is_not_the_reason(subject, way, through, draws, sample):
    if subject.dtype != torch.float32:
        raise Missing(f"the claim is about float32, and the model is in {subject.dtype}")
    way = replace(way, measure="close", through=through)
    way.target(subject).check(subject)
    cases = cases_of(subject, draws)
    single = invert(subject, way, cases)
    double = invert(reference_of(subject), way, cases, single.rates[0])
    slow = invert(subject, way, cases, single.rates[0] / 100)
    sample.add(effect=times_as_many(double, single), control=times_as_many(slow, single))
    record(sample, float32=single, float64=double)
    survival(sample, float32=single, float64=double)


@finding(
    "E9",
    "the distance is not why tokens are wrong: L2 recovers as many as L1",
    needs=TRAINED,
    source="003, 'a different metric, perhaps L² instead of L¹'",
    bound=Bound(bounded_change, at_least=-0.1, at_most=0.1),
    control="a single step",
    draws=48,
    costly=True,
)
@both_ways
def test_the_distance_is_not_the_reason(subject, way, draws, sample):
    cases = cases_of(subject, draws)
    l1, l2 = (invert(subject, replace(way, distance=each), cases) for each in ("l1", "l2"))
    decoder = "nearest"  # whatever the way: a decoder that finds nothing would agree with itself
    sample.add(effect=l2.recovery(decoder) - l1.recovery(decoder))
    sample.add(control=l1.recovery(decoder, step=1) - l1.recovery(decoder))
    record(sample, L1=l1, L2=l2)


@finding(
    "E16",
    "later blocks are worse conditioned",
    needs=TRAINED,
    source="003, 'the later transformer blocks are poorly conditioned relative to the earlier'",
    bound=Bound(rank_correlation, above=0.0),
    control="the first block whatever the depth that is named",
    control_bound=Bound(rank_correlation, at_least=-0.6, at_most=0.6),
    draws=DECIDING,
    costly=True,
)
def test_later_blocks_are_worse_conditioned(subject, draws, sample):
    ids = cases_of(subject, draws).ids.to(subject.device)
    depths = [1 + i % subject.layers for i in range(len(ids))]
    conditions = [conditioned(subject, depth, row) for depth, row in zip(depths, ids, strict=True)]
    first = [conditioned(subject, 1, row) for row in ids]
    sample.add(effect=list(zip(depths, conditions, strict=True)))
    sample.add(control=list(zip(depths, first, strict=True)))
    for depth in range(1, subject.layers + 1):
        depth_conditions = torch.tensor(conditions[depth - 1 :: subject.layers])
        sample.add(**{f"condition after {depth} blocks": depth_conditions})


def conditioned(subject, depth, ids):
    """The condition number of the last state's Jacobian after ``depth`` blocks."""
    return condition(jacobian(subject, Target(depth), ids))


@finding(
    "E17",
    "a linearly falling step size ends lower than a constant one",
    needs=TRAINED,
    source="003, 'η decreasing linearly … empirically results in the fastest optimization'",
    bound=Bound(mean, below=0.0),
    control="the linear one against itself from another start",
    control_bound=Bound(mean, at_least=-0.3, at_most=0.3),
    costly=True,
)
@both_ways
def test_a_falling_step_size_beats_a_constant_one(subject, way, draws, sample):
    cases = cases_of(subject, draws)
    linear, constant = (
        invert(subject, replace(way, schedule=each), cases) for each in ("linear", "constant")
    )
    again = invert(subject, replace(way, seed=1), cases, linear.rates[0])
    sample.add(effect=(linear.final / constant.final).log())
    sample.add(control=(again.final / linear.final).log())
    curves(sample, linear=linear, constant=constant)


@finding(
    "E19",
    "with the head undone as much is recovered as without it: the head costs no information",
    needs=[*TRAINED, "lm-head"],
    source="003, controlled; beyond: linear algebra",
    bound=Bound(bounded_change, at_least=-0.05, at_most=0.05),
    control="a head of an eighth of the rank",
    costly=True,
    slow=True,
)
@both_ways
def test_the_head_is_conditioning_and_not_information(subject, way, draws, sample):
    cases, head = cases_of(subject, draws), replace(way, through="head", undone=True)
    head.target(subject).check(subject)
    bare, undone = invert(subject, way, cases), invert(subject, head, cases)
    through = invert(subject, replace(head, undone=False), cases)
    cut = invert(subject, way, cases, bare.rates[0], projection=an_eighth(subject))
    decoder = "nearest"
    sample.add(effect=undone.recovery(decoder) - bare.recovery(decoder))
    sample.add(control=cut.recovery(decoder) - bare.recovery(decoder))
    record(sample, without_head=bare, head_undone=undone, through_head=through)
    sample.details["condition of the head"] = head_inverse(subject).condition


def an_eighth(subject):
    """The projection onto the first eighth of the head's right-singular vectors: [h, h]."""
    square = gram(subject.model.get_output_embeddings().weight.detach(), torch.float64)
    vectors = decomposition(square)[1][:, -(len(square) // 8) :]
    return vectors @ vectors.T


@finding(
    "E20",
    "with every position at row 0, as the document's code has it, less is recovered",
    needs=[*TRAINED, "learned-positions", "position-ids", "mask-4d", "causal"],
    source="003, `range(len(tokens))`",
    bound=Bound(bounded_change, below=0.0),
    control="without the slip, from another start",
    control_bound=Bound(bounded_change, at_least=-0.1, at_most=0.1),
    draws=48,
    costly=True,
    slow=True,
)
@both_ways
def test_every_position_at_row_0_recovers_less(subject, way, draws, sample):
    cases = cases_of(subject, draws)
    plain, slip = invert(subject, way, cases), invert(subject, replace(way, slip=True), cases)
    again = invert(subject, replace(way, seed=1), cases, plain.rates[0])
    sample.add(effect=slip.recovery() - plain.recovery())
    sample.add(control=again.recovery() - plain.recovery())
    sample.add(more_repeats=repeats(slip) - repeats(plain))
    record(sample, plain=plain, slip=slip)
