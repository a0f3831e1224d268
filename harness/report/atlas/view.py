"""What the atlas says in plain HTML, worked out beforehand: its templates only lay it out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from assay.harness.comparison.changes import Seen, VerdictChange
from assay.harness.report import exhibits, texts, words
from assay.harness.report.atlas.collect import TINY, Cell, Collected
from assay.harness.report.atlas.encode import shown
from assay.harness.report.atlas.flips import Turn, standing, turns
from assay.harness.report.atlas.ladder import ladder
from assay.harness.results.defects import KEYS, Defect
from assay.harness.results.verdicts import Kind, Verdict

MOST_NAMED = 12
"""So many models are named in a sentence; the rest is counted."""

MOST_TURNS = 200


def page(
    found: Collected, flips: list[VerdictChange], defects: Sequence[Defect]
) -> dict[str, Any]:
    """Everything that the page's template needs beside the packed data."""
    laws = [cell for cell in found.cells.values() if cell.result.kind is Kind.LAW]
    counts = Counter(cell.result.verdict for cell in laws)
    explained = {each.slug: _explained(each, laws, found) for each in defects}
    refuted = {id(cell) for cell in laws if cell.result.verdict is Verdict.REFUTED}
    known = {id(cell) for cells in explained.values() for cell in cells}
    turned = turns(standing(flips))
    return {
        "title": _title(found, laws),
        "asides": _asides(found, counts, flips),
        "verdicts": [
            {
                "name": str(verdict),
                "class": exhibits.CLASSES[verdict],
                "symbol": words.SYMBOLS[verdict],
                "count": _spaced(counts[verdict]),
            }
            for verdict in Verdict
        ],
        "laws": _laws(found),
        "turns": [_turn(turn, found) for turn in turned[:MOST_TURNS]],
        "turns_left_out": max(0, len(turned) - MOST_TURNS),
        "ladder": ladder(found),
        "defects": [_defect(each, explained[each.slug], found) for each in defects],
        "unexplained": _spaced(len(refuted - known)),
        "refuted": _spaced(len(refuted)),
        "meanings": words.MEANINGS,
    }


def link(view: str, **where: str) -> str:
    """The hash that shows a place of the map; `None` of a place is left out."""
    return "#" + urlencode({"view": view, **where})


def key(cell: Cell) -> str:
    """A law's name in links."""
    return f"{cell.result.id} {texts.visible(cell.result.name)}"


def _title(found: Collected, laws: list[Cell]) -> str:
    names = {cell.result.name for cell in laws}
    types = {cell.result.subject for cell in laws}
    if not laws:
        return "Findings on the reference models"
    noun = texts.counted(len(names), "law") + f" on {texts.counted(len(types), 'model')}"
    return f"{noun}: where they hold, and where they break"


def _asides(found: Collected, counts: Counter[Verdict], flips: list[VerdictChange]) -> list[str]:
    versions = found.versions
    span = versions[0] if len(versions) == 1 else f"{versions[0]} to {versions[-1]}"
    noun = "one version" if len(versions) == 1 else f"{len(versions)} versions"
    decided = sum(counts.values()) - counts[Verdict.NOT_APPLICABLE]
    lines = []
    if counts:
        told = (
            f"{_spaced(counts[Verdict.UPHELD])} upheld, {_spaced(counts[Verdict.REFUTED])} refuted"
        )
        told += f", {_spaced(counts[Verdict.INCONCLUSIVE])} not decided"
        checks = f"{_spaced(decided)} {'check' if decided == 1 else 'checks'} of laws"
        lines.append(f"{checks} in {noun} of transformers ({span}): {told}.")
    if flips:
        lines.append(_flips(flips))
    if found.superseded:
        lines.append(
            f"{_spaced(found.superseded)} older "
            f"{'result is' if found.superseded == 1 else 'results are'} left out: "
            "of a model, law, version and setting the most thorough counts, then the latest."
        )
    if found.unfinished:
        lines.append(
            f"{texts.counted(found.unfinished, 'run')} did not finish; what was recorded counts."
        )
    return [texts.visible(line, "\u202f") for line in lines]


def _flips(flips: list[VerdictChange]) -> str:
    """How many there are, and how many of them were seen again."""
    stand = standing(flips)
    again = sum(flip.seen is Seen.AGAIN for flip in stand)
    lost = len(flips) - len(stand)
    told = f"{_spaced(len(stand))} {'flip' if len(stand) == 1 else 'flips'} between one version"
    told += " and the next"
    if again:
        some = f"{_spaced(again)} of them" if again < len(stand) else "all"
        told += f", {some} seen again with other examples"
    if lost:
        verb = "was not and is" if lost == 1 else "were not and are"
        told += f"; {_spaced(lost)} more {verb} left out"
    return f"{told}."


def _spaced(amount: int) -> str:
    return f"{amount:,}".replace(",", "\u202f")


def _laws(found: Collected) -> list[dict[str, Any]]:
    """For every law the counts in the newest version that has it, and where it is refuted."""
    by_law: dict[str, list[Cell]] = defaultdict(list)
    for cell in found.cells.values():
        if cell.result.kind is Kind.LAW:
            by_law[cell.result.name].append(cell)
    age = {version: i for i, version in enumerate(found.versions)}
    told = []
    for claim in found.claims:
        if not (cells := by_law.get(claim.name)):
            continue
        newest = max((cell.version for cell in cells), key=age.__getitem__)
        there = [cell for cell in cells if cell.version == newest]
        counts = Counter(cell.result.verdict for cell in there)
        broken = sorted({c.result.subject for c in there if c.result.verdict is Verdict.REFUTED})
        told.append(
            {
                "id": texts.visible(claim.id),
                "name": shown(claim.name),
                "version": texts.visible(newest),
                "counts": [counts[verdict] for verdict in Verdict],
                "broken": _named(broken),
                "link": link("law", law=key(there[0]), version=texts.visible(newest)),
            }
        )
    return told


def _named(subjects: Sequence[str]) -> str:
    shorter = [shown(subject.removeprefix(TINY), 60) for subject in subjects]
    rest = len(shorter) - MOST_NAMED
    return ", ".join(shorter[:MOST_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def _turn(turn: Turn, found: Collected) -> dict[str, Any]:
    cell = found.cells[turn.setting, turn.subjects[0], turn.name, turn.after]
    return {
        "id": texts.visible(cell.result.id),
        "name": shown(turn.name),
        "words": texts.visible(turn.words),
        "repeated": turn.repeated,
        "class": exhibits.CLASSES[turn.verdict],
        "symbol": words.SYMBOLS[turn.verdict],
        "verdict": str(turn.verdict),
        "subjects": _named(turn.subjects),
        "setting": texts.visible(turn.setting) if len(found.settings) > 1 else "",
        "link": link(
            "law",
            law=key(cell),
            type=texts.visible(turn.subjects[0]),
            version=texts.visible(turn.after),
            setting=texts.visible(turn.setting),
            flips="1",
        ),
    }


def _explained(defect: Defect, laws: list[Cell], found: Collected) -> list[Cell]:
    """The broken laws that a defect says to be behind, in the versions where it was seen."""
    return [
        cell
        for cell in laws
        if cell.result.verdict is Verdict.REFUTED
        and cell.version in defect.versions
        and defect.breaks(cell.result.id, cell.result.name)
        and defect.fits(found.types(cell.result.subject))
    ]


def _defect(defect: Defect, cells: list[Cell], found: Collected) -> dict[str, Any]:
    age = {version: i for i, version in enumerate(found.versions)}
    places: dict[tuple[str, str], list[Cell]] = defaultdict(list)
    for cell in cells:
        places[cell.result.id, cell.result.name].append(cell)
    return {
        "slug": defect.slug,
        "title": shown(defect.title),
        "told": [(name, texts.visible(defect.told[name])) for name in KEYS],
        "file": defect.path.name,
        "source": texts.visible(defect.source, "\n\t"),
        "claims": texts.visible(defect.told["Claims"]),
        "types": [texts.visible(each) for each in defect.types],
        "versions": defect.versions,
        "cells": _spaced(len(cells)),
        "places": [
            {
                "id": texts.visible(claim),
                "name": shown(name),
                "types": [
                    {
                        "name": shown(c.result.subject.removeprefix(TINY)),
                        "version": texts.visible(c.version),
                        "link": link(
                            "map",
                            type=texts.visible(c.result.subject),
                            law=key(c),
                            version=texts.visible(c.version),
                            setting=texts.visible(c.setting),
                        ),
                    }
                    for c in _newest(mine, age)
                ],
                "versions": [
                    texts.visible(v)
                    for v in sorted({c.version for c in mine}, key=age.__getitem__)
                ],
            }
            for (claim, name), mine in sorted(
                places.items(), key=lambda item: words.catalogue_order(item[1][0].result)
            )
        ],
    }


def _newest(cells: list[Cell], age: dict[str, int]) -> list[Cell]:
    """One cell for each subject: that of its newest version."""
    best: dict[str, Cell] = {}
    for cell in sorted(cells, key=lambda c: age[c.version]):
        best[cell.result.subject] = cell
    return [best[subject] for subject in sorted(best)]
