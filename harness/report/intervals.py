"""A finding in numbers: its statistic with the interval, the claim, its control.

`Result.details` may hold anything (it may come from a file), so every value is checked.
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
"""Room for the control in a `Strip`, as a multiple of the rest; beyond that it is cut off."""

MOST_RECORDED = 40


def real(value: Any) -> float | None:
    """``value`` if it is a finite number."""
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if plain and math.isfinite(value) else None


def ends(pair: Any) -> Ends | None:
    """The ends of an interval, infinite where open; None if it is not an interval."""
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        return None
    low, high = map(real, pair)
    if low is None and high is None:
        return None
    return -math.inf if low is None else low, math.inf if high is None else high


def estimate(value: Any, interval: Any) -> tuple[str, str]:
    """``0.071`` and ``[0.058, 0.089]``, in as many decimals as the interval's width resolves.

    The second is empty where there is no interval, or one without width.
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
    """The finding's claim about its statistic: ``median ≤ 0.25``."""
    words = row.details.get("claimed")
    return words if isinstance(words, str) and words else texts.number(row.bound)


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
    value: str
    must: str


def control(row: Result) -> Control | None:
    """The outcome of the control, if it was measured or at least named."""
    words, must = (row.details.get(key) for key in ("control", "control must be"))
    value = together(row.details.get("control value"), row.details.get("control interval"))
    if not words and value == "–":
        return None
    return Control(texts.plain(words or ""), value, texts.plain(must or ""))


def recorded(row: Result) -> list[tuple[str, str]]:
    """Medians of additional measurements, as text by name."""
    medians = row.details.get("recorded")
    if not isinstance(medians, dict):
        return []
    values = ((str(name), texts.number(real(value))) for name, value in medians.items())
    return [pair for pair, _ in zip(values, range(MOST_RECORDED), strict=False)]


@dataclass(frozen=True)
class Strip:
    """Positions from 0 to 1 on one axis; ``claimed`` is the part that the claim allows.

    A control too far away is at an edge, and ``beyond`` says at which: -1 or 1.
    """

    limits: tuple[float, ...]
    claimed: Ends | None
    point: float | None
    span: Ends | None
    control: Ends | None = None
    control_point: float | None = None
    beyond: int = 0


def strip(row: Result, with_control: bool = True) -> Strip | None:
    """The positions of the interval of ``row`` and of its bound; None if either is unknown."""
    at, span = real(row.observed), ends(row.interval)
    lower, upper = _limits(row)
    limits = _finite((lower, upper)) or _finite((real(row.bound),))
    values = _finite((*limits, at, *(span or ())))
    if not limits or len(values) == len(limits):
        return None
    control_ends = _control_ends(row) if with_control else []
    low, high = _stretched(values, control_ends)
    pad = (high - low) * 0.1 or abs(low) * 0.1 or 1.0
    low, high = low - pad, high + pad

    def position(value: float) -> float:
        return min(1.0, max(0.0, (value - low) / (high - low)))

    def positions(pair: Ends | None) -> Ends | None:
        return (position(pair[0]), position(pair[1])) if pair else None

    sides = (-math.inf if lower is None else lower, math.inf if upper is None else upper)
    middle = real(row.details.get("control value")) if with_control else None
    return Strip(
        tuple(map(position, limits)),
        positions(sides) if sides[0] < sides[1] and any(map(math.isfinite, sides)) else None,
        None if at is None else position(at),
        positions(span),
        positions((min(control_ends), max(control_ends))) if control_ends else None,
        None if middle is None else position(middle),
        0 if middle is None or low <= middle <= high else -1 if middle < low else 1,
    )


def _limits(row: Result) -> tuple[float | None, float | None]:
    """The lower and the upper limit in the claim's words."""
    lower = upper = None
    for sign, digits in _LIMIT.findall(claimed(row)):
        try:
            limit = real(float(digits))
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


def _stretched(values: tuple[float, ...], extra: list[float]) -> Ends:
    """The range of ``values``, extended to ``extra`` where these are not far off."""
    low, high = min(values), max(values)
    room = (high - low) * REACH
    low = max(low - room, min([low, *extra]))
    return low, min(high + room, max([high, *extra]))


def _finite(values: Iterable[float | None]) -> tuple[float, ...]:
    return tuple(v for v in values if v is not None and math.isfinite(v))
