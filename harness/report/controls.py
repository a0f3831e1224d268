"""The controls of a law as text: their counts, the smallest leak detected, and the bound.

`Result.details` may hold anything (it may come from a file), so every value is checked.
"""

from __future__ import annotations

from typing import Any

from assay.harness.report import texts
from assay.harness.report.intervals import real
from assay.harness.results.verdicts import BOUND, LEAK, LEAK_GOAL, SEES_ONE, Kind, Result

MOST = 8
"""The most controls that are shown."""


def lines(row: Result) -> list[tuple[str, str]]:
    """The entries as (name, text); none for a finding or an older run."""
    if row.kind is not Kind.LAW:
        return []
    entries = []
    controls = row.details.get("controls")
    for name, control in list(controls.items())[:MOST] if isinstance(controls, dict) else ():
        if isinstance(control, dict):
            entries.append((str(name), _counts(control)))
    leak, goal = (real(row.details.get(key)) for key in (LEAK, LEAK_GOAL))
    if leak is not None:
        must = "" if goal is None else f" (must: {texts.number(goal)})"
        entries.append((LEAK, texts.number(leak) + must))
    if isinstance(one := row.details.get(SEES_ONE), dict):
        counts = f"{one.get('what')}: seen in {one.get('seen')} of {one.get('injected')}"
        entries.append((SEES_ONE, texts.plain(counts)))
    if isinstance(bound := row.details.get(BOUND), str):
        entries.append((BOUND, texts.plain(bound)))
    return entries


def _counts(control: dict[str, Any]) -> str:
    says, tried = control.get("says"), control.get("tried")
    counts = f"rejected {control.get('rejected')} of {tried}" if tried else "never tried"
    if why := control.get("does not apply"):
        counts = f"does not apply ({why})"
    return texts.plain(f"{counts}: {says}" if says else counts)
