"""What the atlas shows in addition to its map, computed from the page's data (see `encode`)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any
from urllib.parse import urlencode

from assay.harness.report import exhibits, texts, words
from assay.harness.report.atlas.encode import LETTERS, Data, Explanation, shown
from assay.harness.results.changes import Change
from assay.harness.results.defects import KEYS, Defect
from assay.harness.results.verdicts import Kind, Verdict

MOST_NAMED = 12
"""So many models are named in a sentence; the rest is counted."""


@dataclass(frozen=True)
class Spot:
    """One cell of the map, by its places in the data's lists."""

    setting: int
    claim: int
    subject: int
    version: int
    verdict: Verdict


def page(data: Data, defects: Sequence[Defect], changes: Sequence[Change]) -> dict[str, Any]:
    """Everything that the page's template needs beside the packed data."""
    laws = [spot for spot in spots(data) if data.laws[spot.claim][3] == Kind.LAW]
    counts = Counter(spot.verdict for spot in laws)
    refuted = [spot for spot in laws if spot.verdict is Verdict.REFUTED]
    known: set[Spot] = set()
    told = []
    for defect in defects:
        mine = _explained(defect, refuted, data)
        known.update(mine)
        told.append(_defect(defect, mine, data))
    return {
        "title": data.title,
        "asides": data.asides,
        "ladder": data.ladder,
        "verdicts": [
            {
                "name": str(verdict),
                "class": exhibits.CLASSES[verdict],
                "symbol": words.SYMBOLS[verdict],
                "count": texts.spaced(counts[verdict]),
            }
            for verdict in Verdict
        ],
        "laws": _laws(laws, data),
        "flips": _flips(data),
        "changes": [asdict(change) for change in changes],
        "columns": [each.name for each in fields(Change)],
        "defects": told,
        "unexplained": texts.spaced(len(refuted) - len(known)),
        "refuted": texts.spaced(len(refuted)),
        "meanings": words.MEANINGS,
    }


def explanations(data: Data, defects: Sequence[Defect]) -> list[Explanation]:
    """[slug, title, laws, subjects, versions] of each; laws and subjects are indices."""
    return [
        (
            each.slug,
            shown(each.title),
            [i for i, law in enumerate(data.laws) if each.breaks(law[0], _name(law))],
            [i for i, types in enumerate(data.types) if each.fits(types)],
            each.versions,
        )
        for each in defects
    ]


def spots(data: Data) -> Iterator[Spot]:
    """Every cell of the map that has a result."""
    amounts = [len(each) for each in (data.laws, data.subjects, data.versions)]
    verdicts = {letter: verdict for verdict, letter in LETTERS.items()}
    for i, letter in enumerate(data.verdicts):
        if letter in verdicts:
            rest, version = divmod(i, amounts[2])
            rest, subject = divmod(rest, amounts[1])
            yield Spot(*divmod(rest, amounts[0]), subject, version, verdicts[letter])


def link(view: str, data: Data, spot: Spot, **more: str) -> str:
    """The hash that shows a cell of the map."""
    law = data.laws[spot.claim]
    where = {
        "view": view,
        "type": data.subjects[spot.subject][1],
        "law": f"{law[0]} {_name(law)}",
        "version": data.versions[spot.version],
        "setting": data.settings[spot.setting],
    }
    return "#" + urlencode({**where, **more})


def _name(law: Sequence[str]) -> str:
    return f"{law[1]} [{law[2]}]" if law[2] else law[1]


def _laws(laws: Sequence[Spot], data: Data) -> list[dict[str, Any]]:
    """For every law the counts in the newest version that has it, and where it is refuted."""
    by_law: dict[int, list[Spot]] = defaultdict(list)
    for spot in laws:
        by_law[spot.claim].append(spot)
    told = []
    for claim, mine in sorted(by_law.items()):
        newest = max(spot.version for spot in mine)
        there = [spot for spot in mine if spot.version == newest]
        counts = Counter(spot.verdict for spot in there)
        broken = sorted({s.subject for s in there if s.verdict is Verdict.REFUTED})
        law = data.laws[claim]
        told.append(
            {
                "id": law[0],
                "name": shown(_name(law)),
                "version": data.versions[newest],
                "counts": [counts[verdict] for verdict in Verdict],
                "broken": _named([data.subjects[subject][0] for subject in broken]),
                "link": link("law", data, there[0]),
            }
        )
    return told


def _named(subjects: Sequence[str]) -> str:
    rest = len(subjects) - MOST_NAMED
    named = ", ".join(shown(subject, 60) for subject in subjects[:MOST_NAMED])
    return named + (f" and {rest} more" if rest > 0 else "")


def _flips(data: Data) -> list[dict[str, Any]]:
    """Models whose claims changed from one version to the next that decides them."""
    groups: dict[tuple[int, ...], list[tuple[int, ...]]] = defaultdict(list)
    for flip in data.flips:
        setting, _, subject, before, after, bad, _ = flip
        groups[subject, after, before, setting, bad].append(flip)
    told = []
    for (subject, after, before, setting, bad), flips in sorted(groups.items()):
        verdict = Verdict.REFUTED if bad else Verdict.UPHELD
        again = sum(flip[6] for flip in flips)
        laws = [data.laws[flip[1]] for flip in flips]
        told.append(
            {
                "model": shown(data.subjects[subject][0], 60),
                "before": data.versions[before],
                "after": data.versions[after],
                "class": exhibits.CLASSES[verdict],
                "symbol": words.SYMBOLS[verdict],
                "verdict": str(verdict),
                "laws": _short(laws),
                "again": _again(again, len(flips)),
                "setting": data.settings[setting] if len(data.settings) > 1 else "",
                "link": link(
                    "type", data, Spot(setting, flips[0][1], subject, after, verdict), flips="1"
                ),
            }
        )
    return told


def _again(again: int, flips: int) -> str:
    """How many of the flips were seen again with other examples; empty if none was."""
    return "" if not again else "all" if again == flips else f"{again} of {flips}"


def _short(laws: Sequence[Sequence[str]]) -> list[tuple[str, str]]:
    """``C2 [static, sliding]``, and the sentences, by number of the claim."""
    variants: dict[str, dict[str, None]] = defaultdict(dict)
    sentences: dict[str, dict[str, None]] = defaultdict(dict)
    for number, sentence, variant, _ in laws:
        sentences[number][sentence] = None
        variants[number][variant or "whole"] = None
    return [
        (
            number if [*named] == ["whole"] else f"{number} [{', '.join(named)}]",
            shown("; ".join(sentences[number])),
        )
        for number, named in variants.items()
    ]


def _explained(defect: Defect, refuted: Sequence[Spot], data: Data) -> list[Spot]:
    """The broken laws that a defect explains, in the versions where it was seen."""
    ((_, _, broken, subjects, _),) = explanations(data, [defect])
    return [
        spot
        for spot in refuted
        if spot.claim in broken
        and spot.subject in subjects
        and data.versions[spot.version] in defect.versions
    ]


def _defect(defect: Defect, cells: Sequence[Spot], data: Data) -> dict[str, Any]:
    places: dict[int, dict[int, Spot]] = defaultdict(dict)
    versions: dict[int, set[int]] = defaultdict(set)
    for spot in cells:
        versions[spot.claim].add(spot.version)
        newest = places[spot.claim].get(spot.subject, spot)
        places[spot.claim][spot.subject] = max(spot, newest, key=lambda each: each.version)
    return {
        "slug": defect.slug,
        "title": shown(defect.title),
        "told": [(name, texts.visible(defect.fields[name])) for name in KEYS],
        "file": defect.path.name,
        "source": texts.visible(defect.source, "\n\t"),
        "claims": texts.visible(defect.fields["Claims"]),
        "types": [texts.visible(each) for each in defect.types],
        "versions": defect.versions,
        "cells": texts.spaced(len(cells)),
        "places": [
            {
                "id": data.laws[claim][0],
                "name": shown(_name(data.laws[claim])),
                "versions": [data.versions[each] for each in sorted(versions[claim])],
                "types": [
                    (shown(data.subjects[subject][0]), link("map", data, mine[subject]))
                    for subject in sorted(mine)
                ],
            }
            for claim, mine in sorted(places.items())
        ],
    }
