"""Trainings with a frozen head: what E18 compares starts from a head of its own each time."""

from __future__ import annotations

import torch

from fixtures import frozen_head


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
