"""The last lines about a run: what is broken and where, what is a known defect of the library, and
what does not apply.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from assay.harness.report.texts import clipped, counted, shortened
from assay.harness.results.records import RunRecord
from assay.harness.results.verdicts import Kind, Result, Verdict, number_order

LONGEST = 200
"""Characters of the place of a fault."""

LONGEST_REASON = 120
"""Characters of a reason why claims do not apply."""

MOST_REASONS = 4
"""Reasons why claims do not apply, the most frequent ones."""

_ROW = re.compile(r"(logits|state \d+)\b")
_CAPABILITY = re.compile(r"^[a-z0-9-]+: ")


@dataclass(frozen=True)
class Fault:
    """Laws that one model breaks at one place: ``rows``, that of the smallest example first."""

    subject: str
    place: str
    rows: list[Result]

    @property
    def line(self) -> str:
        """What is broken, and the numbers of its laws; where no more is known, one law's words."""
        place = self.place
        if place == ROWS:
            place += f", against the law that {self.rows[0].name}"
        return f"{clipped(place, LONGEST)} ({numbers(self.rows)})"


def faults(results: Iterable[Result]) -> list[Fault]:
    """The laws that were broken and should not be, by model and place."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for row in results:
        if row.verdict is Verdict.REFUTED and row.kind is Kind.LAW and row.expected is None:
            groups.setdefault((row.subject, _place(row)), []).append(row)
    for subject in {subject for subject, _ in groups}:
        told = [key for key in groups if key[0] == subject and _is_told(groups[key])]
        if len(told) == 1 and (rest := groups.pop((subject, ROWS), None)):
            groups[told[0]] += rest
    return [Fault(*key, sorted(rows, key=_size)) for key, rows in groups.items()]


ROWS = "the output"
"""The place of an error in rows of states or logits of which no more is known."""


def _place(row: Result) -> str:
    """What is wrong, else the tensor or the error, else `ROWS`."""
    example = row.counterexample
    if example is None:
        return row.reason or row.name
    if example.cause or not example.where:
        return example.cause or row.name
    return ROWS if _ROW.match(example.where) else example.where


def _is_told(rows: Sequence[Result]) -> bool:
    return any(row.counterexample is not None and row.counterexample.cause for row in rows)


def _size(row: Result) -> int:
    """Characters of the example's inputs; a law without one comes last."""
    example = row.counterexample
    return 1 << 30 if example is None else sum(map(len, example.inputs.values()))


def numbers(rows: Iterable[Result]) -> str:
    """``C2, 3 variants of C5``: the numbers of claims in order."""
    counts = Counter(row.id for row in sorted(rows, key=lambda row: number_order(row.id)))
    return ", ".join(f"{n} variants of {id}" if n > 1 else id for id, n in counts.items())


def lines(run: RunRecord, results: Sequence[Result]) -> list[str]:
    """What is broken, what is a known defect, and what does not apply, in this order."""
    several = len(run.subjects) > 1
    parts = []
    for fault in faults(results):
        where = f" on {fault.subject}" if several else ""
        parts.append(f"Broken{where}: {fault.line}")
    parts += _known_defects(run, results)
    applies = "does not apply", "do not apply"
    for why, count in _absent(results):
        parts.append(f"{why}: {counted(count, 'claim')} {applies[count > 1]}")
    return parts


def _known_defects(run: RunRecord, results: Iterable[Result]) -> list[str]:
    """A line on the defects of the library that were met, and one on other expected failures."""
    defects: dict[str, list[Result]] = {}
    others: list[Result] = []
    for row in results:
        if row.verdict is Verdict.REFUTED and row.expected is not None:
            defect = row.expected.defect
            (defects.setdefault(defect, []) if defect else others).append(row)
    parts = []
    if defects:
        version = run.versions.get("transformers", "")
        each = ", ".join(f"{name} ({numbers(rows)})" for name, rows in defects.items())
        what = f"Known defects of transformers {version}".rstrip()
        parts.append(f"{what}, with a script in docs/defects each: {each}")
    if others:
        parts.append(f"Refuted as expected: {numbers(others)}")
    return parts


def judged(row: Result, run: RunRecord) -> str:
    """Why a refuted claim is as expected, in a line; empty where nothing expects it."""
    if row.expected is None or row.verdict is not Verdict.REFUTED:
        return ""
    if not row.expected.defect:
        return f"as expected: {row.expected.reason}"
    version = run.versions.get("transformers", "")
    return f"a known defect of transformers {version}: {row.expected.defect}"


def _absent(results: Iterable[Result]) -> list[tuple[str, int]]:
    """The most frequent reasons why claims do not apply, with their counts, then the others."""
    reasons = Counter(
        _CAPABILITY.sub("", row.reason) or "no reason given"
        for row in results
        if row.verdict is Verdict.NOT_APPLICABLE
    )
    frequent = reasons.most_common(MOST_REASONS if len(reasons) > MOST_REASONS + 1 else None)
    rest = sum(reasons.values()) - sum(count for _, count in frequent)
    named = [(shortened(why, LONGEST_REASON), count) for why, count in frequent]
    others = f"for {len(reasons) - len(frequent)} other reasons, which --explain lists"
    return [*named, (others, rest)] if rest else named
