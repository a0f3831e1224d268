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

CONVERSION = "conversion"
"""The engine's own weights beside the model's, both in float64."""

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
        """The parts that no rounding explains; their sum only where they are not known apart.

        Of a cache and of arithmetic transformers has one way alone: an engine that is as near to
        float64 as rounding explains may have a better one, such as a rotation of its cache.  One
        that is as near to transformers' way is explained too.
        """
        off = [name for name, (error, most) in self.judged.items() if not error <= most]
        if TOGETHER not in off:
            return [name for name in off if name == CONVERSION]
        return [name for name in off if name != TOGETHER or "arithmetic" not in self.judged]

    @property
    def passes(self) -> bool:
        """Whether an engine that answers as the control does would not be off.

        What a conversion may change of weights is no matter: at 4 bits that is far more.
        """
        return self.control <= self.judged[TOGETHER][1]


def beside(
    subject: EngineSubject, model: Subject, requests: Sequence[Ids], others: Sequence[Ids]
) -> list[Beside | None]:
    """The engine beside ``model`` on each request; ``others`` are the controls', of one length.

    Raises `BadInput`, or `Missing`.  None where routers of experts decide by near-ties from the
    first token on.
    """
    engine, own, same = subject.engine, subject.own_weights, subject.in_its_dtype
    cache, count = middle.cache_of(engine), len(requests)
    observed = [subject.scores([ids])[0] for ids in requests]
    whole = bounds.exact(model, engine, *requests, *others)
    exact, controls = whole[:count], whole[count:]
    stored = exact if own is None else bounds.exact(own, engine, *requests)

    def errors(one: Sequence[Rows], other: Sequence[Rows]) -> list[float | None]:
        """The distances of two answers to each request, where its own weights have rows."""
        pairs = zip(one, other, (each.end for each in stored), strict=True)
        distances = [apart(a.at(0, end), b.at(0, end)) for a, b, end in pairs]
        return [None if each is None else each.error for each in distances]

    def middle_of(inputs: str, cache: str) -> list[Rows]:
        return middle.of_model(same, requests, engine, inputs, cache) if same else []

    judged = dict[str, tuple[list[float | None], list[float]]]()
    recorded = {CONVERSION: errors(stored, exact)}
    most = bounds.limits(subject, requests, stored)
    if subject.converted is not None:
        changed = errors(bounds.exact(subject.converted, engine, *requests), exact)
        room = [bounds.INDEPENDENT * (each or 0.0) + bounds.ALONE["float32"] for each in changed]
        if own is None:
            most = [a + b for a, b in zip(most, room, strict=True)]
        else:
            judged[CONVERSION] = recorded[CONVERSION], room
    if same is not None:
        rounded = middle_of(engine.activations, cache)
        if cache:  # apart from inputs, of which each change makes some round otherwise
            changed = errors(middle_of("", cache), middle_of("", ""))
            judged["cache"] = changed, [bounds.most_of_cache(cache)] * count
        recorded["type and cache"] = explained = errors(rounded, stored)
        pairs = zip(explained, most, strict=True)
        most = [min(bounds.FACTOR * (error or 0.0) + each / 10, each) for error, each in pairs]
        judged["arithmetic"] = errors(observed, rounded), most
    judged[TOGETHER] = errors(observed, stored), most
    for i, ids in enumerate(requests):  # before arithmetic is off: what other machines round
        farthest = max(of_all[i] or 0.0 for of_all, allowed in judged.values() if allowed is most)
        most[i] = bounds.Room(subject, ids, most[i]).of(farthest)
    answers = list[Beside | None]()
    for i, control in enumerate(controls):
        sizes = {
            name: each for name, of_all in recorded.items() if (each := of_all[i]) is not None
        }
        parts = {
            name: (each, allowed[i])
            for name, (of_all, allowed) in judged.items()
            if (each := of_all[i]) is not None
        }
        distance = apart(control, exact[i])
        if distance is None or TOGETHER not in parts:
            answers.append(None)
        else:
            answers.append(Beside(observed[i], exact[i], distance.error, parts, sizes))
    return answers


def divergence(exact: Rows, observed: Rows) -> Array:
    """KL(model ‖ engine) in nats by position [rows]; of whole distributions."""
    p, q = exact.values, observed.at(0, exact.end).values
    return np.asarray((np.exp(p) * (p - q)).sum(1).clip(min=0.0))


def ratios(trained: Sequence[Array], sampled: Sequence[Array]) -> dict[str, Any]:
    """Log-probabilities of sampled tokens, by the trained model and by the engine [tokens] each:
    their mean difference, the ratios of probabilities, the share beyond `CLIP`, by position.
    """
    differences = [model - engine for model, engine in zip(trained, sampled, strict=True)]
    every = np.concatenate(differences)
    ratio = np.exp(every)
    table = np.full((len(differences), max(map(len, differences))), np.nan)
    for row, each in zip(table, differences, strict=True):
        row[: len(each)] = each
    beyond = np.where(np.isnan(table), np.nan, np.abs(np.exp(table) - 1.0) > CLIP)

    def by_position(values: Array) -> dict[str, float]:
        quarters = [each for each in np.array_split(np.arange(values.shape[1]), 4) if len(each)]
        return {f"{q[0]} to {q[-1]}": float(np.nanmean(values[:, q])) for q in quarters}

    share = f"share of tokens beyond 1 ± {CLIP}"
    return {
        "tokens": len(every),
        "mean difference": float(every.mean()),
        "mean absolute difference by token": by_position(np.abs(table)),
        "ratios": {name: float(np.quantile(ratio, q)) for name, q in QUANTILES.items()},
        share: float((np.abs(ratio - 1.0) > CLIP).mean()),
        f"{share} by token": by_position(beyond),
    }


def lines(values: Mapping[str, Any]) -> list[list[str]]:
    """Numbers by name as rows of a table; those by name within them share a row."""
    rows = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            rows.append([f"{name}: {', '.join(value)}", ", ".join(map(_text, value.values()))])
        else:
            several = value if isinstance(value, list) else [value]
            rows.append([name, " to ".join(map(_text, several))])
    return rows


def _text(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
