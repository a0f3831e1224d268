"""Whether a frozen head helps training: document 003's closing conjecture (E18)."""

from __future__ import annotations

import pytest

from assay.fixtures import frozen_head
from assay.harness.checking.findings import Bound, finding
from assay.harness.checking.statistics import share

SEEDS = 6


@finding(
    "E18",
    "a model trained with its head frozen is better after equally many steps",
    source="003, 'Freezing the language modeling head … would … assist'",
    bound=Bound(share, above=0.5),
    control="a head frozen at zero",
    draws=SEEDS,
    costly=True,
    toy=True,
    slow=("a trained model's head",),
)
@pytest.mark.parametrize("start", ["a trained model's head", "a fresh head"])
def test_a_frozen_head_helps_training(start, draws, sample):
    for seed in draws:
        head = frozen_head.sensible_head(seed) if start == "a trained model's head" else None
        frozen, trained = (frozen_head.loss(seed, head, frozen=each) for each in (True, False))
        zero = frozen_head.loss(seed, frozen_head.NOTHING, frozen=True, steps=1)
        sample.add(effect=frozen < trained, control=zero < trained)
        sample.add(frozen=frozen, trained=trained, frozen_less_trained=frozen - trained)
