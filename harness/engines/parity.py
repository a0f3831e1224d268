"""An engine beside the model that it serves: scores of the same ids, and of what it samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from assay.harness.engines import bounds, middle
from assay.harness.engines.interface import Ids
from assay.harness.engines.scores import Rows, apart
from assay.harness.engines.subject import EngineSubject
from assay.harness.models.subject import Subject
from assay.harness.results.arrays import Array

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
        parts = {"conversion": apart(self.stored, self.exact)}
        if self.rounded is not None:
            parts["type and cache"] = apart(self.rounded, self.stored)
            parts["arithmetic"] = apart(self.observed, self.rounded)
        return {name: each.error for name, each in parts.items() if each is not None}


def beside(subject: EngineSubject, model: Subject, ids: Ids) -> Beside:
    """The engine beside ``model`` on one request; raises `BadInput`, or `Missing`."""
    engine, own = subject.engine, subject.own_weights
    (observed,) = subject.scores([ids])
    exact = bounds.exact(model, ids, engine)
    stored = exact if own is None else bounds.exact(own, ids, engine)
    same = subject.in_its_dtype
    types = (engine.activations, middle.cache_of(engine))
    rounded = None if same is None else middle.of_model(same, ids, engine, *types)
    most = bounds.limit(subject, ids, stored.end)
    if engine.stored and own is None:
        most = max(most, bounds.ALONE[bounds.kind(engine.stored)])
    return Beside(observed, exact, stored, rounded, most)


def divergence(exact: Rows, observed: Rows) -> Array:
    """KL(model ‖ engine) in nats by position [rows]; of whole distributions."""
    p, q = exact.values, observed.at(0, exact.end).values
    return np.asarray((np.exp(p) * (p - q)).sum(1).clip(min=0.0))


def ratios(trained: Sequence[Array], sampled: Sequence[Array]) -> dict[str, Any]:
    """Log-probabilities of sampled tokens, by the trained model and by the engine [tokens] each:
    their mean difference, the ratios of probabilities, the share beyond `CLIP`, by position.
    """
    apart_by = [model - engine for model, engine in zip(trained, sampled, strict=True)]
    every = np.concatenate(apart_by)
    ratio = np.exp(every)
    table = np.full((len(apart_by), max(map(len, apart_by))), np.nan)
    for row, each in zip(table, apart_by, strict=True):
        row[: len(each)] = np.abs(each)
    quarters = [each for each in np.array_split(np.arange(table.shape[1]), 4) if len(each)]
    by_position = {f"{q[0]} to {q[-1]}": float(np.nanmean(table[:, q])) for q in quarters}
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


def lines(values: Mapping[str, Any], before: str = "") -> list[list[str]]:
    """Numbers by name, with those by name within them, as rows of a table."""
    rows: list[list[str]] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            rows += lines(value, f"{before}{name}, ")
        else:
            several = value if isinstance(value, list) else [value]
            text = " to ".join(
                f"{each:.4g}" if isinstance(each, float) else str(each) for each in several
            )
            rows.append([before + name, text])
    return rows
