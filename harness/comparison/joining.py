"""Joins runs into one: a sweep, several machines, or one side of a comparison.

A claim on a model counts once, with the result of the run that ended last.  Where runs of either
side differ in a setting, a model is a separate one under each of its values: its name is followed
by the value, on both sides, so that like is compared with like.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from assay.harness.comparison.sides import Key, Side, read
from assay.harness.results.records import RunRecord, SubjectRecord
from assay.harness.results.verdicts import Result

SETTINGS = (
    *("dtype", "device", "attention", "profile", "seed", "rounding", "allocation"),
    *("bitwise", "layers"),
)
PACKAGES = ("transformers", "torch")
"""Settings and packages that distinguish models of the same name."""

PHRASES = {name: name + " {}" for name in ("attention", *SETTINGS[4:], *PACKAGES)}
"""Phrases for settings whose values do not name them."""

OF_EACH = ("id", "exit", "selection", "per_subject", "subjects", "versions", "started", "finished")
"""Fields that differ from run to run; the last four are combined."""


def pair(before: str, after: str) -> tuple[Side, Side]:
    """Both sides of a comparison by their names (`harness.comparison.sides.read`)."""
    one, other = read(before), read(after)
    varied = _varied(one, other)
    return joined(one, varied), joined(other, varied)


def together(names: Iterable[str]) -> Side:
    """All runs of these names (`harness.comparison.sides.read`) as one; raises `BadInput`."""
    parts = [part for name in names for part in read(name)]
    parts.sort(key=lambda part: part.run.finished or part.run.started)
    return joined(parts, _varied(parts))


def _varied(*sides: Sequence[Side]) -> list[str]:
    """The settings and packages in which runs of one side differ."""
    return [
        name
        for name in (*SETTINGS, *PACKAGES)
        if any(len({str(_setting(part, name)) for part in side}) > 1 for side in sides)
    ]


def joined(parts: Sequence[Side], varied: Sequence[str]) -> Side:
    """Join ``parts``, in the order in which they ended; ``varied`` settings name the models."""
    if len(parts) == 1 and not varied:
        return parts[0]
    rows: dict[Key, Result] = {}
    subjects: dict[str, SubjectRecord] = {}
    for part in parts:
        suffix = "".join(f" · {_phrase(part, name)}" for name in varied)
        # A later run of a claim replaces the earlier, in the order of the later.
        for (claim, name, subject), row in part.rows.items():
            key = claim, name, subject + suffix
            rows.pop(key, None)
            rows[key] = row
        subjects |= {name + suffix: facts for name, facts in part.run.subjects.items()}
    run = _run(parts, varied)
    run.subjects = subjects
    return Side(parts[0].name, run, rows, len(parts), parts[0].others)


def _setting(part: Side, name: str) -> Any:
    return part.run.versions.get(name) if name in PACKAGES else getattr(part.run, name)


def _phrase(part: Side, name: str) -> str:
    value = _setting(part, name)
    return PHRASES.get(name, "{}").format("its own" if value in (None, "") else value)


def _run(parts: Sequence[Side], varied: Sequence[str]) -> RunRecord:
    """The settings of all runs; None for varying ones, which the models' names have.

    Values that differ are one text, so fields may have other types than in a run's record.
    """
    runs = [part.run for part in parts]
    common: dict[str, Any] = {
        name: None if name in varied else _common([getattr(run, name) for run in runs])
        for name in RunRecord.__struct_fields__
        if name not in OF_EACH
    }
    versions = {
        name: _common([run.versions.get(name) for run in runs])
        for name in dict.fromkeys(package for run in runs for package in run.versions)
        if name not in varied
    }
    times: dict[str, Any] = {"started": min(run.started for run in runs)}
    if len(runs) == 1:
        times |= {name: getattr(runs[0], name) for name in ("id", "exit", "finished")}
    else:
        ends = [run.finished for run in runs]
        times |= {"id": None, "finished": None if None in ends else max(map(str, ends))}
    return RunRecord(**common, **times, versions=versions)


def _common(values: Sequence[Any]) -> Any:
    """The common value of all, or all values in a text."""
    by_text = {str(value): value for value in values}
    return values[0] if len(by_text) == 1 else " and ".join(sorted(by_text))
