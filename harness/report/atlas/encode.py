"""The page's data: tables of strings and one index per cell, packed.

What the page's script reads is JSON: ``subjects``, ``laws``, ``versions``, ``settings``, then
``verdicts``, a string with a letter for every place of the cube setting × law × subject ×
version (`LETTERS`; a dot where nothing was run), and columns with an entry for every place that
has a result, in the cube's order.  Compressed (gzip, base64) it is some five bytes per result.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from typing import Any

from assay.harness.comparison.changes import Seen, VerdictChange
from assay.harness.report import intervals, texts, words
from assay.harness.report.atlas.collect import TINY, Cell, Collected
from assay.harness.results.defects import Defect
from assay.harness.results.verdicts import Kind, Result, Verdict

LETTERS = {
    Verdict.UPHELD: "u",
    Verdict.REFUTED: "r",
    Verdict.INCONCLUSIVE: "i",
    Verdict.NOT_APPLICABLE: "n",
}
UNBUILT, NOT_RUN = "b", "."

MOST_REASON = 300
MOST_INPUTS = 12


class Table:
    """Strings, each once, by index; the empty one is 0."""

    def __init__(self) -> None:
        self.strings: list[str] = [""]
        self._places = {"": 0}

    def place(self, text: str) -> int:
        """The index of ``text``, which is added if it is new."""
        if text not in self._places:
            self._places[text] = len(self.strings)
            self.strings.append(text)
        return self._places[text]


def encoded(found: Collected, flips: Sequence[VerdictChange], room: int) -> dict[str, Any]:
    """The data as plain JSON; of a counterexample's inputs at most ``room`` characters each.

    With no room at all the commands that replay are left out too.
    """
    claims, versions = found.claims, found.versions
    subjects, settings = found.subjects, found.settings
    strings = Table()
    digests = Table()
    letters: list[str] = []
    columns: dict[str, list[Any]] = {
        name: [] for name in ("observed", "bound", "margin", "examples", "reason", "run")
    } | {"digest": [], "judged": []}
    runs: dict[tuple[str, ...], int] = {}
    of_run = [runs.setdefault(_run(run), len(runs)) for run in found.runs]
    seen: dict[int, list[Any]] = {}
    spans: dict[int, list[int]] = {}
    for setting in settings:
        for claim in claims:
            for subject in subjects:
                for version in versions:
                    cell = found.cells.get((setting, subject, claim.name, version))
                    if cell is None:
                        refused = (subject, version) in found.refused
                        letters.append(UNBUILT if refused else NOT_RUN)
                        continue
                    letters.append(LETTERS[cell.result.verdict])
                    at = len(columns["run"])
                    columns["run"].append(of_run[cell.run])
                    _add(columns, cell, strings, digests)
                    if cell.result.counterexample:
                        seen[at] = _counterexample(cell.result, room)
                    if cell.result.kind is Kind.FINDING:
                        told = intervals.estimate(cell.result.observed, cell.result.interval)[1]
                        claimed = intervals.claimed(cell.result)
                        spans[at] = [strings.place(told), strings.place(shown(claimed))]
    return {
        "subjects": [[_label(s), texts.visible(s), *_shape(found, s)] for s in subjects],
        "laws": [[texts.visible(c.id), *_parts(c), str(c.kind)] for c in claims],
        "versions": [*map(texts.visible, versions)],
        "settings": [*map(texts.visible, settings)],
        "verdicts": "".join(letters),
        "columns": columns,
        "strings": strings.strings,
        "digests": digests.strings,
        "seen": seen,
        "spans": spans,
        "refused": _refused(found, subjects, versions),
        "runs": list(runs),
        "flips": _flips(flips, found, claims),
        "judged": found.judged,
    }


def explanations(found: Collected, defects: Sequence[Defect]) -> list[list[Any]]:
    """[slug, title, laws, subjects, versions] of each; laws and subjects are indices."""
    claims, subjects = found.claims, found.subjects
    return [
        [
            each.slug,
            shown(each.title),
            [i for i, claim in enumerate(claims) if each.breaks(claim.id, claim.name)],
            [i for i, subject in enumerate(subjects) if each.fits(found.types(subject))],
            each.versions,
        ]
        for each in defects
    ]


def packed(data: dict[str, Any]) -> str:
    """``data`` as gzip in base64."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # Lone surrogates were made visible; the same input gives the same bytes.
    return base64.b64encode(gzip.compress(text.encode(), 7, mtime=0)).decode("ascii")


def shown(text: str, most: int = MOST_REASON) -> str:
    """``text`` as the page shows it."""
    return texts.visible(texts.clipped(text, most))


def _add(columns: dict[str, list[Any]], cell: Cell, strings: Table, digests: Table) -> None:
    result = cell.result
    applies = result.verdict is not Verdict.NOT_APPLICABLE
    columns["observed"].append(texts.number(result.observed) if applies else 0)
    columns["bound"].append(texts.number(result.bound) if applies else 0)
    margin = intervals.clearance if result.kind is Kind.FINDING else texts.decades
    columns["margin"].append(strings.place(margin(result) if applies else ""))
    columns["examples"].append(result.examples)
    # The same is said by the counterexample, in numbers.
    reason = "" if result.counterexample and result.kind is Kind.LAW else result.reason
    columns["reason"].append(strings.place(shown(reason)))
    columns["digest"].append(digests.place(texts.visible(cell.digest[:12])))
    columns["judged"].append(strings.place(shown(cell.judgement or "")))


def _counterexample(result: Result, room: int) -> list[Any]:
    """[observed, allowed, where, replay, [[label, text], …]]."""
    told = result.counterexample or {}
    inputs = (words.inputs(told) + words.unknown(told))[:MOST_INPUTS]
    drawn = [
        (shown(label, 80), texts.visible(texts.clipped(t, room), "\n")) for label, t in inputs
    ]
    return [
        texts.visible(texts.size(told.get("observed", result.observed))),
        texts.visible(texts.size(told.get("allowed", result.bound))),
        shown(texts.plain(told.get("where") or "")),
        shown(texts.plain(told.get("replay") or ""), 2000) if room else "",
        drawn if room else [],
    ]


def _label(subject: str) -> str:
    return texts.visible(subject.removeprefix(TINY))


def _shape(found: Collected, subject: str) -> list[str]:
    """What the model is, in a few words."""
    return [texts.visible(words.shape(found.facts.get(subject, {})))]


def _parts(claim: Result) -> list[str]:
    """A claim's sentence, and what stands in brackets at its end."""
    whole = texts.visible(claim.name)
    sentence, bracket, variant = whole.rpartition(" [")
    if not bracket or not variant.endswith("]"):
        return [whole, ""]
    return [sentence, variant[:-1]]


def _refused(
    found: Collected, subjects: Sequence[str], versions: Sequence[str]
) -> list[tuple[int, int, str]]:
    return [
        (subjects.index(subject), versions.index(version), shown(why))
        for (subject, version), why in found.refused.items()
    ]


def _run(run: dict[str, Any]) -> tuple[str, ...]:
    """(date, versions in words, profile, seed, suite)."""
    versions = [v for v in words.versions(run) if v.split()[0] in ("python", "torch")]
    return (
        texts.visible(str(run.get("started") or "")[:10]),
        texts.visible(", ".join(versions)),
        *(texts.visible(str(run.get(key))) for key in ("profile", "seed", "suite")),
    )


def _flips(
    flips: Sequence[VerdictChange], found: Collected, claims: Sequence[Result]
) -> list[list[int]]:
    """[setting, law, subject, version before, version after] as indices; 1 if it is bad after;
    1 if it was seen again.
    """
    places = [
        {name: i for i, name in enumerate(names)}
        for names in (found.settings, [c.name for c in claims], found.subjects, found.versions)
    ]
    return [
        [
            places[0][f.setting],
            places[1][f.name],
            places[2][f.subject],
            places[3][f.before],
            places[3][f.after],
            int(f.verdict is Verdict.REFUTED),
            int(f.seen is Seen.AGAIN),
        ]
        for f in flips
    ]
