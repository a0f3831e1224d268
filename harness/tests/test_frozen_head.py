"""Trainings with a frozen head: what E18 compares starts from a head of its own each time."""

from __future__ import annotations

import pytest
import torch

from claims import test_frozen_head as claims
from fixtures import frozen_head
from harness.tests.toys import toy, verdict
from harness.verdicts import Verdict


def test_each_draw_has_a_head_of_its_own(monkeypatch):
    monkeypatch.setattr(
        frozen_head, "trained", lambda seed, head, frozen: frozen_head._fresh(seed)
    )
    frozen_head.sensible_head.cache_clear()
    one, again, other = (frozen_head.sensible_head(seed) for seed in (0, 0, 1))
    frozen_head.sensible_head.cache_clear()
    assert torch.equal(one, again)
    assert one.shape == other.shape == frozen_head.NOTHING.shape
    assert not torch.equal(one, other)


@pytest.mark.parametrize(
    ("frozen", "at_zero", "expected"),
    [
        (1.5, 5.0, Verdict.UPHELD),
        (2.5, 5.0, Verdict.REFUTED),
        (None, 5.0, Verdict.INCONCLUSIVE),  # better from every second seed
        (1.5, 1.0, Verdict.INCONCLUSIVE),  # a head that says nothing is better, too
    ],
)
@pytest.mark.parametrize("start", ["a trained model's head", "a fresh head"])
def test_e18_hangs_on_both_trainings(monkeypatch, start, frozen, at_zero, expected):
    of_frozen, trained = frozen, 2.0

    def loss(seed, head, frozen, steps=0):
        if head is frozen_head.NOTHING:
            return at_zero
        return (of_frozen or (1.5 if seed % 2 else 2.5)) if frozen else trained

    monkeypatch.setattr(frozen_head, "loss", loss)
    monkeypatch.setattr(frozen_head, "sensible_head", lambda seed: None)
    claim = claims.test_a_frozen_head_helps_training
    result = verdict(claim, toy("reference:small"), arguments={"start": start})
    assert result.verdict is expected
