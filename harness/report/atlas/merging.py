"""Adds the results of new evidence to the data of an older atlas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeVar

from assay.harness.checking.profiles import PROFILES
from assay.harness.report import words
from assay.harness.report.atlas import encode
from assay.harness.report.atlas.collect import TINY, age
from assay.harness.report.atlas.encode import NOT_RUN, UNBUILT, Data, Table
from assay.harness.results.verdicts import Kind, Result, Verdict

T = TypeVar("T")

TEXTS = ("margin", "reason", "judged")
"""Columns that are indices of strings."""

Key = tuple[str, tuple[str, str, str, str], str, str]
"""(setting, law, subject's name, version)."""


@dataclass(frozen=True)
class Entry:
    """A result in one of two atlases: the letter of its verdict, and its index in the columns."""

    data: Data
    letter: str
    at: int

    @property
    def rank(self) -> tuple[int, str]:
        """How thorough its run was, and when: the highest counts."""
        date, _, profile, _, _ = self.data.runs[self.data.columns["run"][self.at]]
        names = list(PROFILES)
        return names.index(profile) if profile in names else -1, date


def merged(older: Data, newer: Data) -> Data:
    """All results of both, of two for the same cell the more thorough one, then the later one.

    A flip of the older one stays if both of its verdicts are still shown.
    """
    entries: dict[Key, Entry] = {}
    superseded = older.superseded + newer.superseded
    for data in (older, newer):
        for key, entry in _entries(data):
            if (known := entries.get(key)) is not None:
                superseded += 1
            if known is None or entry.rank >= known.rank:
                entries[key] = entry
    axes = _Axes.of(older, newer)
    refused = dict(_refused(older) + _refused(newer))
    ran = {(subject, version) for _, _, subject, version in entries}
    refused = {each: why for each, why in refused.items() if each not in ran}
    made = _Made(older, newer)
    letters = []
    for key in product(axes.settings, axes.laws, axes.subjects, axes.versions):
        if (shown := entries.get(key)) is not None:
            letters.append(shown.letter)
            made.add(shown)
        else:
            letters.append(UNBUILT if key[2:] in refused else NOT_RUN)
    names = {subject[1]: subject for data in (older, newer) for subject in data.subjects}
    types = {
        s[1]: t for data in (older, newer) for s, t in zip(data.subjects, data.types, strict=True)
    }
    result = Data(
        title="",
        asides=[],
        superseded=superseded,
        subjects=[names[name] for name in axes.subjects],
        types=[types[name] for name in axes.subjects],
        laws=axes.laws,
        versions=axes.versions,
        settings=axes.settings,
        verdicts="".join(letters),
        columns=made.columns,
        strings=made.strings.strings,
        digests=made.digests.strings,
        seen=made.seen,
        spans=made.spans,
        refused=[
            (axes.subjects.index(subject), axes.versions.index(version), why)
            for (subject, version), why in refused.items()
        ],
        runs=list(made.runs),
        flips=_flips(axes, entries, older, newer),
        judged=older.judged or newer.judged,
        ladder=_ladder(older, newer),
        unfinished=older.unfinished + newer.unfinished,
        unrepeated=older.unrepeated + newer.unrepeated,
    )
    encode.describe(result)
    return result


def _entries(data: Data) -> list[tuple[Key, Entry]]:
    return [
        (
            (
                data.settings[spot.setting],
                data.laws[spot.claim],
                data.subjects[spot.subject][1],
                data.versions[spot.version],
            ),
            Entry(data, encode.LETTERS[spot.verdict], at),
        )
        for at, spot in enumerate(encode.spots(data))
    ]


def _refused(data: Data) -> list[tuple[tuple[str, str], str]]:
    return [((data.subjects[s][1], data.versions[v]), why) for s, v, why in data.refused]


@dataclass(frozen=True)
class _Axes:
    """The four axes of the merged cube, each in the atlas's order."""

    settings: list[str]
    laws: list[tuple[str, str, str, str]]
    subjects: list[str]
    versions: list[str]

    @classmethod
    def of(cls, older: Data, newer: Data) -> _Axes:
        """Those of the older atlas, and what the newer one has besides."""
        subjects = _union([s[1] for s in older.subjects], [s[1] for s in newer.subjects])
        tiny = sorted(each for each in subjects if each.startswith(TINY))
        return cls(
            _union(older.settings, newer.settings),
            sorted(_union(older.laws, newer.laws), key=_catalogue_order),
            tiny + [each for each in subjects if not each.startswith(TINY)],
            sorted(_union(older.versions, newer.versions), key=age),
        )


def _union(first: Sequence[T], second: Sequence[T]) -> list[T]:
    return list(dict.fromkeys([*first, *second]))


def _catalogue_order(law: tuple[str, str, str, str]) -> Any:
    number, _, _, kind = law
    return words.catalogue_order(Result(number, encode.name(law), Kind(kind), "", Verdict.UPHELD))


class _Made:
    """The columns and tables of the merged data, filled cell by cell in the cube's order."""

    def __init__(self, *sources: Data) -> None:
        self.columns: dict[str, list[Any]] = {name: [] for name in sources[0].columns}
        self.strings, self.digests = Table(), Table()
        self.seen: dict[int, list[Any]] = {}
        self.spans: dict[int, list[int]] = {}
        self.runs: dict[tuple[str, str, str, str, str], int] = {}
        for data in sources:
            for run in data.runs:
                self.runs.setdefault(run, len(self.runs))

    def add(self, entry: Entry) -> None:
        data, at = entry.data, len(self.columns["run"])
        for name, values in data.columns.items():
            value = values[entry.at]
            if name in TEXTS:
                value = self.strings.index(data.strings[value])
            elif name == "digest":
                value = self.digests.index(data.digests[value])
            elif name == "run":
                value = self.runs[data.runs[value]]
            self.columns[name].append(value)
        if (seen := data.seen.get(entry.at)) is not None:
            self.seen[at] = seen
        if (span := data.spans.get(entry.at)) is not None:
            self.spans[at] = [self.strings.index(data.strings[each]) for each in span]


def _flips(
    axes: _Axes, entries: dict[Key, Entry], *sources: Data
) -> list[tuple[int, int, int, int, int, int, int]]:
    flips: dict[tuple[int, int, int, int, int], tuple[int, int]] = {}
    for data in sources:
        for setting, law, subject, before, after, bad, again in data.flips:
            where = data.settings[setting], data.laws[law], data.subjects[subject][1]
            ends = [entries.get((*where, data.versions[each])) for each in (before, after)]
            letters = [entry.letter if entry is not None else NOT_RUN for entry in ends]
            if letters != (["u", "r"] if bad else ["r", "u"]):
                continue
            key = (
                axes.settings.index(where[0]),
                axes.laws.index(where[1]),
                axes.subjects.index(where[2]),
                axes.versions.index(data.versions[before]),
                axes.versions.index(data.versions[after]),
            )
            flips[key] = bad, again
    return [(*key, *value) for key, value in flips.items()]


def _ladder(older: Data, newer: Data) -> list[dict[str, Any]]:
    """The findings of both; one that the newer atlas has is drawn from it."""
    rows = {(row["id"], row["name"]): row for data in (older, newer) for row in data.ladder}
    order = {
        law[0]: at for at, law in enumerate(sorted(older.laws + newer.laws, key=_catalogue_order))
    }
    return sorted(rows.values(), key=lambda row: order.get(row["id"], len(order)))
