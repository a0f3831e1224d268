"""Decoding by the pseudo-inverse of a table as large as GPT-2's against torch's own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from harness.decoding import PseudoInverse

V, D, TOKENS = 50257, 768, 20
ROUNDS = 5
NOISE = 0.1
"""Added to the rows that are decoded, over the table's own standard deviation."""


def table(condition: float, generator: torch.Generator) -> Tensor:
    """Rows [V, d] in float32 whose singular values span about this condition."""
    scales = torch.logspace(0, 1, D, base=1 / condition)
    turned = torch.linalg.qr(torch.randn(D, D, generator=generator)).Q
    return 0.1 * (torch.randn(V, D, generator=generator) * scales) @ turned


@pytest.mark.parametrize("condition", [1, 50])
def test_decoding(race, report, device, condition):
    generator = torch.Generator().manual_seed(0)
    w = table(condition, generator)
    ids = torch.randint(V, (TOKENS,), generator=generator)
    e = w[ids] + NOISE * w.std() * torch.randn(TOKENS, D, generator=generator)
    w, e, ids = w.to(device), e.to(device), ids.to(device)

    def ours():
        return PseudoInverse.of(w).decode(e)

    def theirs():
        return (e @ torch.linalg.pinv(w)).argmax(-1)

    assert ours().equal(theirs())
    assert ours().equal(ids)

    factored = PseudoInverse.of(w)
    rounds = race(ours, ROUNDS, {"pinv": theirs, "again": lambda: factored.decode(e)})
    name = f"decoding, condition {factored.condition:.2g}"
    report.figure(name, "× torch.linalg.pinv", rounds.times("pinv"), 20)
    report.also(
        seconds=float(np.median(rounds.seconds)),
        seconds_of_pinv=float(np.median(rounds.others["pinv"])),
        seconds_once_factored=float(np.median(rounds.others["again"])),
        method=factored.method,
        condition=factored.condition,
    )
