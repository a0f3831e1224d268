"""Descents whose outcome is constructed, so that findings about inversion come out any way."""

from __future__ import annotations

import torch

from assay.fixtures import inversions
from assay.harness.checking.profiles import Profile
from assay.harness.inversion import Descent, embedded
from assay.harness.tests.support.toys import fresh, verdict


def constructed(
    monkeypatch,
    right=lambda model, way: 1.0,
    steps=lambda model, way: 10.0,
    wrong=7,
    at_once=0.0,
):
    """Descents that recover a share ``right`` of the tokens and meet (4) after ``steps``.

    Wrong tokens are ``wrong`` ones.  Steps vary by row, and by model as they are given.
    After a single step nothing is recovered, or the share ``at_once``.
    """

    def descend(model, way, cases, rates, projection=None, over=None):
        ids = cases.ids.repeat(len(rates), 1)
        rows, n = ids.shape
        places = (torch.arange(rows * n).view(rows, n) * 0.618) % 1
        embeddings, early = (
            embedded(model)[torch.where(places < share, ids, wrong)]
            for share in (right(model, way), at_once)
        )
        met = steps(model, way) * (1 + 0.1 * (torch.arange(rows) % 3))
        close = torch.where(met <= way.steps, met.ceil(), torch.inf)
        losses = torch.ones(rows, way.steps + 1)
        losses[:, -1] = torch.where(close.isfinite(), 0.0, 1e9)
        watched = {s: embeddings for s in (*inversions.WATCHED, way.steps) if s <= way.steps}
        watched |= {0: early, 1: early}
        return Descent(embeddings, losses, close, torch.zeros(rows, dtype=torch.long), watched)

    monkeypatch.setattr(inversions, "_descend", descend)
    monkeypatch.setattr(inversions, "unit_of", lambda *_: 1.0)


def fresh_side(model):
    return "untrained" in model.name


def settled(claim, prompts=24, spec="reference:small", **arguments):
    profile = Profile("test", examples=0, shrink=0, prompts=prompts)
    return verdict(claim, fresh(spec), profile, arguments=arguments)
