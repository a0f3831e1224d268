"""A finding in numbers: its statistic with the interval, what is claimed, its control.

`Result.details` may hold anything (it may come from a file), so nothing of it is taken on trust.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from assay.harness.report import texts
from assay.harness.results.verdicts import DECADES, Result

Ends = tuple[float, float]

_LIMIT = re.compile(r"([≥>≤<]) *(-?\d[\d.]*(?:e[-+]?\d+)?)")

MOST_DECIMALS = 6

REACH = 2.0
"""The control's part of a `Strip` may take so much more room than the rest; else it is cut off."""

MOST_RECORDED = 40


def real(value: Any) -> float | None:
    """``value`` if it is a finite number."""
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if plain and math.isfinite(value) else None


def ends(told: Any) -> Ends | None:
    """The ends of an interval, infinite where there is none; None if it is no interval."""
    if not isinstance(told, list | tuple) or len(told) != 2:
        return None
    low, high = map(real, told)
    if low is None and high is None:
        return None
    return -math.inf if low is None else low, math.inf if high is None else high


def estimate(value: Any, interval: Any) -> tuple[str, str]:
    """``0.071`` and ``[0.058, 0.089]``, in as many decimals as the interval's width resolves.

    The second is empty where there is no interval, or none that has a width.
    """
    at, span = real(value), ends(interval)
    if span is None or span[0] == span[1]:
        return texts.number(at), ""
    width = span[1] - span[0]
    finite = [each for each in (at, *span) if each is not None and math.isfinite(each)]
    largest = max(map(abs, finite))
    if not (0 < width < math.inf and 0.01 <= largest < 10_000):
        low, high = map(texts.number, span)
        return texts.number(at), f"[{low}, {high}]"
    decimals = max(0, min(MOST_DECIMALS, 1 - math.floor(math.log10(width))))
    low, high = (f"{each + 0.0:.{decimals}f}" for each in span)
    return "–" if at is None else f"{at + 0.0:.{decimals}f}", f"[{low}, {high}]"


def together(value: Any, interval: Any) -> str:
    """``0.071 [0.058, 0.089]``."""
    return " ".join(filter(None, estimate(value, interval)))


def claimed(row: Result) -> str:
    """What the finding says of its statistic: ``median ≤ 0.25``."""
    told = row.details.get("claimed")
    return told if isinstance(told, str) and told else texts.number(row.bound)


def clearance(row: Result) -> str:
    """The margin in half-widths of the interval: ``+9.4``; ``–`` where it has no width."""
    span, margin = ends(row.interval), real(row.margin)
    if span is None or margin is None or not 0 < span[1] - span[0] < math.inf:
        return "–"
    if abs(margin) >= DECADES:
        return f"> {DECADES:g}" if margin > 0 else f"< -{DECADES:g}"
    return f"{margin:+.1f}"


@dataclass(frozen=True)
class Control:
    """The control of a finding, as text."""

    words: str
    told: str
    must: str


def control(row: Result) -> Control | None:
    """How the control came out, if one was looked at or is at least named."""
    said, must = (row.details.get(key) for key in ("control", "control must be"))
    told = together(row.details.get("control value"), row.details.get("control interval"))
    if not said and told == "–":
        return None
    return Control(texts.plain(said or ""), told, texts.plain(must or ""))


def recorded(row: Result) -> list[tuple[str, str]]:
    """Medians of what was measured beside, as text by name."""
    told = row.details.get("recorded")
    if not isinstance(told, dict):
        return []
    values = ((str(name), texts.number(real(value))) for name, value in told.items())
    return [pair for pair, _ in zip(values, range(MOST_RECORDED), strict=False)]


@dataclass(frozen=True)
class Strip:
    """Places from 0 to 1 on one axis; ``claimed`` is the part where the claim lets it be.

    A control too far away to be on it is at the edge, and ``beyond`` says at which: -1 or 1.
    """

    limits: tuple[float, ...]
    claimed: Ends | None
    point: float | None
    span: Ends | None
    control: Ends | None = None
    control_point: float | None = None
    beyond: int = 0


def strip(row: Result, with_control: bool = True) -> Strip | None:
    """Where the interval of ``row`` lies, and where its bound; None if either is not known."""
    at, span = real(row.observed), ends(row.interval)
    lower, upper = _limits(row)
    limits = _finite((lower, upper)) or _finite((real(row.bound),))
    known = _finite((*limits, at, *(span or ())))
    if not limits or len(known) == len(limits):
        return None
    seen = _control_ends(row) if with_control else []
    low, high = _stretched(known, seen)
    pad = (high - low) * 0.1 or abs(low) * 0.1 or 1.0
    low, high = low - pad, high + pad

    def place(value: float) -> float:
        return min(1.0, max(0.0, (value - low) / (high - low)))

    def places(pair: Ends | None) -> Ends | None:
        return (place(pair[0]), place(pair[1])) if pair else None

    sides = (-math.inf if lower is None else lower, math.inf if upper is None else upper)
    middle = real(row.details.get("control value")) if with_control else None
    return Strip(
        tuple(map(place, limits)),
        places(sides) if sides[0] < sides[1] and any(map(math.isfinite, sides)) else None,
        None if at is None else place(at),
        places(span),
        places((min(seen), max(seen))) if seen else None,
        None if middle is None else place(middle),
        0 if middle is None or low <= middle <= high else -1 if middle < low else 1,
    )


def _limits(row: Result) -> tuple[float | None, float | None]:
    """The lower and the upper limit that the claim's words name."""
    lower = upper = None
    for sign, told in _LIMIT.findall(claimed(row)):
        try:
            limit = real(float(told))
        except ValueError:
            continue
        if sign in "≥>":
            lower = limit
        else:
            upper = limit
    return lower, upper


def _control_ends(row: Result) -> list[float]:
    span = ends(row.details.get("control interval")) or ()
    return list(_finite((real(row.details.get("control value")), *span)))


def _stretched(known: tuple[float, ...], others: list[float]) -> Ends:
    """From the least to the most of ``known``, and ``others`` where they are not far off."""
    low, high = min(known), max(known)
    room = (high - low) * REACH
    low = max(low - room, min([low, *others]))
    return low, min(high + room, max([high, *others]))


def _finite(values: Iterable[float | None]) -> tuple[float, ...]:
    return tuple(v for v in values if v is not None and math.isfinite(v))
