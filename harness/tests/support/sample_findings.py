"""Findings with everything filled in, for tests of what is shown of them."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from assay.harness.results.verdicts import Kind, Result, Verdict
from assay.harness.tests.support.sample_runs import LARGE

DETAILS: dict[str, Any] = {
    "claimed": "median ≤ 0.25",
    "control": "noise of ten times the table's scale in place of the rows",
    "control must be": "beyond: median ≤ 0.25",
    "control value": 12.14,
    "control interval": (10.2, 14.0),
    "recorded": {"top-1 agreement": 0.93},
}
"""What the engine of findings says of a finding that is upheld."""


def finding(**changes: Any) -> Result:
    """An upheld finding as the engine gives it, with changes."""
    upheld = Result(
        "A1", "permuting positions barely changes the output", Kind.FINDING, LARGE,
        Verdict.UPHELD, 0.0712, 0.25, 10.4, (0.058, 0.089), 512, 6.2, details=DETAILS,
    )  # fmt: skip
    return replace(upheld, **changes)


def findings() -> list[Result]:
    """A finding of every verdict, and those that have less to show."""
    return [
        finding(),
        finding(
            id="A2", verdict=Verdict.REFUTED, observed=0.71, interval=(0.66, 0.79), margin=-4.5,
        ),
        finding(
            id="E8", verdict=Verdict.INCONCLUSIVE, observed=1.07, interval=(0.91, 1.3), bound=1.25,
            margin=-0.3, reason="the interval [0.91, 1.3] holds the bound after 512 draws",
            details=DETAILS | {"claimed": "ratio of means ≥ 0.8 and ≤ 1.25"},
        ),
        finding(id="A12", observed=0.9, interval=(0.9, 0.9), bound=0.8, margin=16.0, details={}),
        finding(id="F5", verdict=Verdict.INCONCLUSIVE, observed=None, bound=None, interval=None,
                margin=-16.0, reason="no draw has a value"),
        finding(id="A9", verdict=Verdict.NOT_APPLICABLE, observed=None, bound=None, interval=None,
                margin=None, reason="needs trained: the weights are random"),
    ]  # fmt: skip
