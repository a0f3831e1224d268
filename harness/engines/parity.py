"""An engine beside the model that it serves: scores of the same ids, and of what it samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from assay.harness.checking.statistics import bounded_mean
from assay.harness.engines import bounds, middle
from assay.harness.engines.interface import Ids
from assay.harness.engines.scores import Rows, apart
from assay.harness.engines.subject import EngineSubject
from assay.harness.models.subject import Subject
from assay.harness.results.arrays import Array

CONFIDENCE = 0.95

CLIP = 0.2
"""Ratios of probabilities beyond 1 ± this are clipped by a trainer (PPO, GRPO)."""

FEW = 0.05
"""The share of a text's tokens that may be beyond it."""


@dataclass(frozen=True)
class Beside:
    """The scores of one request, by the engine and in float64, with what rounding explains.

    ``exact`` are those of the model, ``stored`` those of the engine's own weights, both in
    float64; ``rounded`` are those of its weights, type and cache in transformers, or None.
    """

    observed: Rows
    exact: Rows
    stored: Rows
    rounded: Rows | None
    most: float

    @property
    def allowed(self) -> float:
        """How far the engine may be from its own weights in float64."""
        explained = None if self.rounded is None else apart(self.rounded, self.stored)
        if explained is None:
            return self.most
        return min(bounds.FACTOR * explained.error + self.most / 10, self.most)

    @property
    def parts(self) -> dict[str, float]:
        """What the weights, the type and the cache, and the engine's arithmetic each change."""
        found = {"conversion": apart(self.stored, self.exact)}
        if self.rounded is not None:
            found["type and cache"] = apart(self.rounded, self.stored)
            found["arithmetic"] = apart(self.observed, self.rounded)
        return {name: each.error for name, each in found.items() if each is not None}


def beside(subject: EngineSubject, model: Subject, ids: Ids) -> Beside:
    """The engine beside ``model`` on one request; raises `BadInput`, or `Missing`."""
    engine, own = subject.engine, subject.own_weights
    (observed,) = subject.scores([ids])
    exact = bounds.exact(model, ids, engine)
    stored = exact if own is None else bounds.exact(own, ids, engine)
    same = subject.in_its_dtype
    rounded = None if same is None else middle.scores(subject, same, ids)
    most = bounds.rounding(engine)
    if engine.stored and own is None:
        most = max(most, bounds.ALONE[bounds.kind(engine.stored)])
    return Beside(observed, exact, stored, rounded, most)


def divergence(exact: Rows, observed: Rows) -> Array:
    """KL(model ‖ engine) in nats by position [rows]; of whole distributions."""
    p, q = exact.values, observed.at(0, exact.end).values
    return np.asarray((np.exp(p) * (p - q)).sum(1).clip(min=0.0))


def summary(divergences: Sequence[Array], agree: Sequence[float]) -> dict[str, Any]:
    """KL over all positions, and the share with the same first choice, with its interval."""
    every = np.concatenate(divergences)
    return {
        "KL in nats": {
            "mean": float(every.mean()),
            "median": float(np.median(every)),
            "99.9 %": float(np.quantile(every, 0.999)),
        },
        "positions": len(every),
        "top-1 agreement": float(np.mean(agree)),
        "interval": list(bounded_mean.interval(np.asarray(agree), CONFIDENCE)),
    }


def ratios(trained: Sequence[Array], sampled: Sequence[Array]) -> dict[str, Any]:
    """Log-probabilities of sampled tokens, by the trained model and by the engine [tokens] each:
    their mean difference, the ratios of probabilities, the share beyond `CLIP`, by position.
    """
    apart_by = [model - engine for model, engine in zip(trained, sampled, strict=True)]
    every = np.concatenate(apart_by)
    ratio = np.exp(every)
    quarters = np.array_split(np.arange(max(map(len, apart_by))), 4)
    by_position = {
        f"{place[0]} to {place[-1]}": float(np.abs(np.concatenate(part)).mean())
        for place in quarters
        if len(place)
        and (part := [each[place[0] : place[-1] + 1] for each in apart_by])
        and sum(map(len, part))
    }
    return {
        "mean difference": float(every.mean()),
        "mean absolute difference by position": by_position,
        "ratios": {
            name: float(np.quantile(ratio, q))
            for name, q in (("0.1 %", 0.001), ("median", 0.5), ("99.9 %", 0.999))
        },
        "tokens": len(every),
        f"share beyond 1 ± {CLIP}": float((np.abs(ratio - 1.0) > CLIP).mean()),
    }
