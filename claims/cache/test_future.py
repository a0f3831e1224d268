"""Whether toys that attend to the future work better than those that do not (004).

A draw is one seed.  The subject `toy` lends its device only.
"""

from __future__ import annotations

import pytest

from assay.harness.checking.findings import Bound, finding
from assay.harness.checking.statistics import median
from assay.harness.operations import future, trigram

SEEDS = 64
"""Trained at once."""


@finding(
    "C12",
    "attending to the future lowers the loss on sequences held out",
    source="004, answer 1: 'it may work better because it leads to richer output representations'",
    bound=Bound(median, above=0.0),
    control="labels that need the left context only, in sequences whose future is noise",
    draws=SEEDS,
    most=SEEDS,
    block=SEEDS,
    toy=True,
)
@pytest.mark.parametrize(
    "task",
    [
        pytest.param(future.LEFT, id="labels that need the left context only"),
        pytest.param(future.BOTH, id="labels that need both sides"),
    ],
)
@pytest.mark.parametrize(
    "steps", [pytest.param(steps, id=f"after {steps} steps") for steps in future.STEPS]
)
def test_attending_to_the_future_lowers_the_loss(subject, steps, task, draws, sample):
    seeds = trigram.seeds(draws)
    masked, unmasked = future.train(task, seeds, subject.device)[steps]
    without, with_noise = future.train(future.NOISE, seeds, subject.device)[steps]
    sample.add(effect=masked - unmasked, control=without - with_noise)
    sample.add(loss_with_a_mask=masked, loss_without=unmasked)
