"""Whether a frozen head helps training: document 003's closing conjecture (E18)."""

from __future__ import annotations

import pytest
import torch

from fixtures import frozen_head, inversions
from harness.findings import Bound, finding
from harness.statistics import share

SEEDS = 8


@finding(
    "E18",
    "a model trained with its head frozen is better after equally many steps",
    needs=["embedded-reference"],
    source="003, 'Freezing the language modeling head … would … assist'",
    bound=Bound(share, above=0.5),
    control="a head frozen at zero",
    draws=SEEDS,
    costly=True,
)
@pytest.mark.parametrize("start", ["a trained model's head", "a fresh head"])
def test_a_frozen_head_helps_training(subject, start, draws, sample):
    small = inversions.sister(subject, "small")
    head = small.embedding_table.detach() if start == "a trained model's head" else None
    nothing = torch.zeros_like(small.embedding_table)
    arms = {"frozen": (head, True), "trained": (head, False), "zero": (nothing, True)}
    for seed in draws:
        after = frozen_head.losses(small, arms, 1000 + seed)
        sample.add(effect=after["frozen"] < after["trained"])
        sample.add(control=after["zero"] < after["trained"])
        sample.add(frozen=after["frozen"], trained=after["trained"])
        sample.add(frozen_less_trained=after["frozen"] - after["trained"])
