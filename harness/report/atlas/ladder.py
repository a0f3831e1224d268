"""Findings on models that are not tiny: effect sizes with intervals, on one axis per finding."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any

from assay.harness.report import exhibits, intervals, texts, words
from assay.harness.report.atlas.collect import TINY, Cell, Collected
from assay.harness.results.verdicts import Kind, Verdict

LOG_FROM = 30.0
"""Positive values this many times apart are drawn on a log axis."""

PAD = 0.05


def ladder(collected: Collected) -> list[dict[str, Any]]:
    """Findings by variant ('as documented', 'controlled') and model, as text and positions.

    A finding that applies to none of the models is left out; so are models to which it does not
    apply.  Of a model's results in several versions and settings the newest version's counts,
    and of those the most used setting's.
    """
    groups: dict[tuple[str, str], dict[str, list[Cell]]] = defaultdict(lambda: defaultdict(list))
    for cell in _latest(collected):
        sentence, _, variant = cell.result.name.partition(" [")
        groups[cell.result.id, sentence][variant.removesuffix("]")].append(cell)
    order = {subject: i for i, subject in enumerate(collected.subjects)}
    several = len(collected.versions) > 1, len(collected.settings) > 1
    rows = []
    for (claim, sentence), variants in groups.items():
        position, log = _axis([cell for cells in variants.values() for cell in cells])
        rows.append(
            {
                "id": texts.visible(claim),
                "name": exhibits.short(sentence),
                "log": log,
                "variants": [
                    {
                        "name": exhibits.short(variant),
                        "rows": [
                            _row(cell, position, several)
                            for cell in sorted(cells, key=lambda c: order[c.result.subject])
                        ],
                    }
                    for variant, cells in variants.items()
                ],
            }
        )
    return rows


def _latest(collected: Collected) -> list[Cell]:
    """One cell for each finding and model, in the catalogue's order."""
    versions = {version: i for i, version in enumerate(collected.versions)}
    settings = {setting: -i for i, setting in enumerate(collected.settings)}
    best: dict[tuple[str, str], Cell] = {}
    for cell in collected.cells.values():
        result = cell.result
        if result.kind is not Kind.FINDING or result.verdict is Verdict.NOT_APPLICABLE:
            continue
        if result.subject.startswith(TINY):
            continue
        key = result.name, result.subject
        rank = versions[cell.version], settings[cell.setting]
        other = best.get(key)
        if other is None or rank > (versions[other.version], settings[other.setting]):
            best[key] = cell
    return sorted(best.values(), key=lambda cell: words.catalogue_order(cell.result))


def _row(
    cell: Cell, position: Callable[[float], float], several: tuple[bool, bool]
) -> dict[str, Any]:
    result = cell.result
    value, interval = intervals.estimate(result.observed, result.interval)
    span = intervals.ends(result.interval)
    at = intervals.real(result.observed)
    control = intervals.control(result)
    return {
        "subject": texts.visible(result.subject),
        "where": texts.visible(", ".join(compress((cell.version, cell.setting), several))),
        "verdict": str(result.verdict),
        "class": exhibits.CLASSES[result.verdict],
        "symbol": words.SYMBOLS[result.verdict],
        "value": value.replace("-", "−"),
        "interval": interval.replace("-", "−"),
        "claimed": exhibits.short(intervals.claimed(result)),
        "control": "" if control is None else control.value.replace("-", "−"),
        "judged": exhibits.short(cell.judgement or ""),
        "reason": exhibits.short(result.reason),
        "limits": [position(limit) for limit in _limits(cell)],
        "span": None if span is None else (position(span[0]), position(span[1])),
        "point": None if at is None else position(at),
    }


def _limits(cell: Cell) -> Sequence[float]:
    limit = intervals.real(cell.result.bound)
    return [] if limit is None else [limit]


def _axis(cells: list[Cell]) -> tuple[Callable[[float], float], bool]:
    """From a value to its position in percent, and whether the axis is logarithmic."""
    numbers = [limit for cell in cells for limit in _limits(cell)]
    for cell in cells:
        values = (cell.result.observed, *(intervals.ends(cell.result.interval) or ()))
        numbers += [v for v in values if v is not None and math.isfinite(v)]
    numbers = numbers or [0.0, 1.0]
    log = min(numbers) > 0 and max(numbers) / min(numbers) >= LOG_FROM
    scale = math.log10 if log else float
    low, high = scale(min(numbers)), scale(max(numbers))
    pad = (high - low) * PAD or 1.0
    low, high = low - pad, high + pad

    def position(value: float) -> float:
        if not math.isfinite(value) or (log and value <= 0):
            return 100.0 if value > 0 else 0.0
        return round(min(100.0, max(0.0, 100 * (scale(value) - low) / (high - low))), 1)

    return position, log
