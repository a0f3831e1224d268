"""The parts of the atlas other than its map, computed from the page's data (see `encode`)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any
from urllib.parse import urlencode

from assay.harness.report import exhibits, texts, words
from assay.harness.report.atlas.encode import Data, Explanation, Spot, name, shown, spots
from assay.harness.results.change_causes import Change
from assay.harness.results.defects import KEYS, Defect
from assay.harness.results.verdicts import Kind, Verdict

MOST_NAMED = 12
"""How many models are named in a sentence; the rest is counted."""


def page(data: Data, defects: Sequence[Defect], changes: Sequence[Change]) -> dict[str, Any]:
    """The values of the page's template other than the packed data."""
    laws = [spot for spot in spots(data) if data.laws[spot.claim][3] == Kind.LAW]
    counts = Counter(spot.verdict for spot in laws)
    refuted = [spot for spot in laws if spot.verdict is Verdict.REFUTED]
    explained: set[Spot] = set()
    rows = []
    for defect in defects:
        spots_of_defect = _explained(defect, refuted, data)
        explained.update(spots_of_defect)
        rows.append(_defect(defect, spots_of_defect, data))
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
        "defects": rows,
        "unexplained": texts.spaced(len(refuted) - len(explained)),
        "refuted": texts.spaced(len(refuted)),
        "meanings": words.MEANINGS,
    }


def explanations(data: Data, defects: Sequence[Defect]) -> list[Explanation]:
    """[slug, title, laws, subjects, versions] of each; laws and subjects are indices."""
    return [
        (
            each.slug,
            shown(each.title),
            [i for i, law in enumerate(data.laws) if each.breaks(law[0], name(law))],
            [i for i, types in enumerate(data.types) if each.fits(types)],
            each.versions,
        )
        for each in defects
    ]


def link(view: str, data: Data, spot: Spot, **options: str) -> str:
    """The hash that shows a cell of the map."""
    law = data.laws[spot.claim]
    where = {
        "view": view,
        "type": data.subjects[spot.subject][1],
        "law": f"{law[0]} {name(law)}",
        "version": data.versions[spot.version],
        "setting": data.settings[spot.setting],
    }
    return "#" + urlencode({**where, **options})


def _laws(laws: Sequence[Spot], data: Data) -> list[dict[str, Any]]:
    """For every law the counts in the newest version that has it, and the models that break it."""
    by_law: dict[int, list[Spot]] = defaultdict(list)
    for spot in laws:
        by_law[spot.claim].append(spot)
    rows = []
    for claim, cells in sorted(by_law.items()):
        newest = max(spot.version for spot in cells)
        newest_cells = [spot for spot in cells if spot.version == newest]
        counts = Counter(spot.verdict for spot in newest_cells)
        broken = sorted({s.subject for s in newest_cells if s.verdict is Verdict.REFUTED})
        law = data.laws[claim]
        rows.append(
            {
                "id": law[0],
                "name": shown(name(law)),
                "version": data.versions[newest],
                "counts": [counts[verdict] for verdict in Verdict],
                "broken": _named([data.subjects[subject][0] for subject in broken]),
                "link": link("law", data, newest_cells[0]),
            }
        )
    return rows


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
    rows = []
    for (subject, after, before, setting, bad), flips in sorted(groups.items()):
        verdict = Verdict.REFUTED if bad else Verdict.UPHELD
        again = sum(flip[6] for flip in flips)
        laws = [data.laws[flip[1]] for flip in flips]
        rows.append(
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
    return rows


def _again(again: int, flips: int) -> str:
    """How many of the flips repeats showed with other examples; empty if none."""
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
    """The broken laws that a defect explains, in its versions."""
    ((_, _, broken, subjects, _),) = explanations(data, [defect])
    return [
        spot
        for spot in refuted
        if spot.claim in broken
        and spot.subject in subjects
        and data.versions[spot.version] in defect.versions
    ]


def _defect(defect: Defect, cells: Sequence[Spot], data: Data) -> dict[str, Any]:
    by_claim: dict[int, dict[int, Spot]] = defaultdict(dict)
    versions: dict[int, set[int]] = defaultdict(set)
    for spot in cells:
        versions[spot.claim].add(spot.version)
        newest = by_claim[spot.claim].get(spot.subject, spot)
        by_claim[spot.claim][spot.subject] = max(spot, newest, key=lambda each: each.version)
    return {
        "slug": defect.slug,
        "title": shown(defect.title),
        "sections": [(name, texts.visible(defect.fields[name])) for name in KEYS],
        "file": defect.path.name,
        "source": texts.visible(defect.source, "\n\t"),
        "claims": texts.visible(defect.fields["Claims"]),
        "types": [texts.visible(each) for each in defect.types],
        "versions": defect.versions,
        "cells": texts.spaced(len(cells)),
        "places": [
            {
                "id": data.laws[claim][0],
                "name": shown(name(data.laws[claim])),
                "versions": [data.versions[each] for each in sorted(versions[claim])],
                "types": [
                    (shown(data.subjects[subject][0]), link("map", data, by_subject[subject]))
                    for subject in sorted(by_subject)
                ],
            }
            for claim, by_subject in sorted(by_claim.items())
        ],
    }
