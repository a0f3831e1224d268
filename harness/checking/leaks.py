"""Summarises the smallest error that each law detected, by dtype, over many sound models."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from assay.harness.results.verdicts import BOUND, LEAK, LEAK_GOAL, SEES_ONE, Kind, Result, Verdict

Law = tuple[str, str]
"""A law's number and its sentence, without the parameters of its test."""


@dataclass(frozen=True)
class Sensitivity:
    """The relative size of a leak that one law detects on every model, in one dtype.

    ``typical`` is the median over models and variants, ``worst`` the largest; ``blunt`` counts
    those on which the law missed its goal.  ``bound`` says what judges its comparisons.
    ``one`` names the unit that a counting law counts; its sizes are NaN.
    """

    typical: float
    worst: float
    models: int
    blunt: int
    bound: str
    one: str = ""


def law_of(result: Result) -> Law:
    """The law of a result: all variants of one test together, except those with a bound of their
    own, which have no goal.
    """
    alone = LEAK in result.details and LEAK_GOAL not in result.details
    return result.id, result.name if alone else result.name.partition(" [")[0]


def by_law(results: Mapping[str, Iterable[Result]]) -> dict[Law, dict[str, Sensitivity]]:
    """The sensitivity of each law, by dtype; ``results`` are by dtype.

    Laws that measure no sensitivity are left out.  Every run of a variant counts.
    """
    results_by_law: dict[Law, dict[str, list[Result]]] = {}
    for dtype, rows in results.items():
        for row in rows:
            decided = row.verdict in (Verdict.UPHELD, Verdict.INCONCLUSIVE)
            if row.kind is Kind.LAW and decided and row.details.keys() & {LEAK, SEES_ONE}:
                results_by_law.setdefault(law_of(row), {}).setdefault(dtype, []).append(row)
    return {
        law: {dtype: _sensitivity(rows) for dtype, rows in each.items()}
        for law, each in sorted(results_by_law.items(), key=lambda pair: _order(pair[0]))
    }


def _sensitivity(rows: list[Result]) -> Sensitivity:
    ones = [row.details[SEES_ONE] for row in rows if SEES_ONE in row.details]
    sizes = sorted(_size(row) for row in rows if LEAK in row.details) or [math.nan]
    blunt = sum(_size(row) > row.details.get(LEAK_GOAL, math.inf) for row in rows)
    blunt += sum(one["seen"] < one["injected"] for one in ones)
    # Where shapes depend on the tokens, a law has one bound fewer than on other models.
    bound = max((str(row.details.get(BOUND, "")) for row in rows), key=len)
    models = len({row.subject for row in rows})
    what = ones[0]["what"] if ones else ""
    return Sensitivity(sizes[len(sizes) // 2], sizes[-1], models, blunt, bound, what)


def _size(row: Result) -> float:
    """JSON has no infinity: null means that the law detected no leak of any size."""
    size = row.details.get(LEAK, 0.0)
    return math.inf if size is None else float(size)


def _order(law: Law) -> tuple[str, int, str]:
    id, name = law
    return id[0], int(id[1:]), name
