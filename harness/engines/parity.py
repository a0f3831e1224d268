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

QUANTILES = {"0.1 %": 0.001, "5 %": 0.05, "median": 0.5, "95 %": 0.95, "99.9 %": 0.999}
"""What is reported of the ratios' distribution."""

FEW = 0.05
"""The share of a text's tokens that may be beyond it."""

TOGETHER = "distance to float64"
"""The engine and its own weights in float64: all that its types, cache and arithmetic change."""


@dataclass(frozen=True)
class Beside:
    """The scores of one request, by the engine and by the model in float64, and what is judged.

    ``judged`` has the error of each part, and how large it may be; ``recorded`` other errors.
    ``control`` is the model's distance to another request.
    """

    observed: Rows
    exact: Rows
    control: float
    judged: Mapping[str, tuple[float, float]]
    recorded: Mapping[str, float]

    @property
    def off(self) -> list[str]:
        """The parts that no rounding explains: where it is one of them, not their sum."""
        off = [name for name, (error, most) in self.judged.items() if not error <= most]
        return off[: len(off) - (len(off) > 1 and off[-1] == TOGETHER)]

    @property
    def passes(self) -> bool:
        """Whether the control is no farther than a part may be."""
        return self.control <= max(most for _, most in self.judged.values())


def beside(subject: EngineSubject, model: Subject, ids: Ids, other: Ids) -> Beside | None:
    """The engine beside ``model`` on one request; ``other`` is the control's, of its length.

    Raises `BadInput`, or `Missing`.  None where routers of experts decide by near-ties from the
    first token on.
    """
    engine, own, same = subject.engine, subject.own_weights, subject.in_its_dtype
    (observed,) = subject.scores([ids])
    exact, another = bounds.exact(model, engine, ids, other)
    stored = exact if own is None else bounds.exact(own, engine, ids)[0]

    def error(one: Rows, other: Rows) -> float | None:
        distance = apart(one.at(0, stored.end), other.at(0, stored.end))
        return None if distance is None else distance.error

    judged, recorded = dict[str, tuple[float | None, float]](), dict[str, float | None]()
    most = bounds.limit(subject, ids, stored.end)
    recorded["conversion"] = error(stored, exact)
    if subject.converted is not None:
        changed = error(bounds.exact(subject.converted, engine, ids)[0], exact) or 0.0
        converted = bounds.INDEPENDENT * changed + bounds.ALONE["float32"]
        if own is None:
            most += converted
        else:
            judged["conversion"] = recorded["conversion"], converted
    if same is not None:
        cache = middle.cache_of(engine)
        rounded = middle.of_model(same, ids, engine, engine.activations, cache)
        if cache:  # apart from inputs, of which each change makes some round otherwise
            cached, plain = (middle.of_model(same, ids, engine, "", each) for each in (cache, ""))
            judged["cache"] = error(cached, plain), bounds.ALONE[middle.kind(cache)]
        recorded["type and cache"] = explained = error(rounded, stored)
        most = min(bounds.FACTOR * (explained or 0.0) + most / 10, most)
        judged["arithmetic"] = error(observed, rounded), most
    judged[TOGETHER] = error(observed, stored), most
    if judged[TOGETHER][0] is None or (control := apart(another, exact)) is None:
        return None
    sizes = {name: each for name, each in recorded.items() if each is not None}
    found = {name: (each, most) for name, (each, most) in judged.items() if each is not None}
    return Beside(observed, exact, control.error, found, sizes)


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
        "ratios": {name: float(np.quantile(ratio, q)) for name, q in QUANTILES.items()},
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
