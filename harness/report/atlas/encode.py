"""The page's data: tables of strings and one index per cell, packed.

What the page's script reads is `Data` as JSON.  Compressed (gzip, base64) it is some five bytes
per result.  A page can be made again from it, with other defects and in another layout.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import zlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from assay.harness.comparison.changes import Seen, VerdictChange
from assay.harness.report import intervals, texts, words
from assay.harness.report.atlas.collect import TINY, Cell, Collected
from assay.harness.report.atlas.flips import standing
from assay.harness.report.atlas.ladder import ladder
from assay.harness.results.records import RunRecord, SubjectRecord
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


Explanation = tuple[str, str, list[int], list[int], list[str]]
"""[slug, title, laws, subjects, versions] of a defect; laws and subjects are indices."""


class Data(msgspec.Struct):
    """All that an atlas says of its evidence; what needs explaining is not in it.

    ``verdicts`` has a letter for every place of the cube setting × law × subject × version
    (`LETTERS`; a dot where nothing was run), ``columns`` an entry for every place that has a
    result, in the cube's order.  Laws are [number, sentence, variant, kind], subjects [label,
    name, shape], ``types`` the model types that a subject goes by, flips [setting, law, subject,
    before, after, whether it is bad after, whether it was seen again], ``refused`` [subject,
    version, why], ``defects`` as `view.explanations` has them.
    """

    title: str
    asides: list[str]
    superseded: int
    subjects: list[tuple[str, str, str]]
    types: list[list[str]]
    laws: list[tuple[str, str, str, str]]
    versions: list[str]
    settings: list[str]
    verdicts: str
    columns: dict[str, list[Any]]
    strings: list[str]
    digests: list[str]
    seen: dict[int, list[Any]]
    spans: dict[int, list[int]]
    refused: list[tuple[int, int, str]]
    runs: list[tuple[str, str, str, str, str]]
    flips: list[tuple[int, int, int, int, int, int, int]]
    judged: bool
    ladder: list[dict[str, Any]]
    defects: list[Explanation] = []


def encoded(found: Collected, flips: Sequence[VerdictChange], room: int) -> Data:
    """The evidence as a page's data; of a counterexample's inputs at most ``room`` characters.

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
    runs: dict[tuple[str, str, str, str, str], int] = {}
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
    return Data(
        title=_title(found),
        asides=_asides(found, flips),
        superseded=found.superseded,
        subjects=[(_label(s), texts.visible(s), _shape(found, s)) for s in subjects],
        types=[sorted(map(texts.visible, found.types(subject))) for subject in subjects],
        laws=[(texts.visible(c.id), *_parts(c), str(c.kind)) for c in claims],
        versions=[*map(texts.visible, versions)],
        settings=[*map(texts.visible, settings)],
        verdicts="".join(letters),
        columns=columns,
        strings=strings.strings,
        digests=digests.strings,
        seen=seen,
        spans=spans,
        refused=_refused(found, subjects, versions),
        runs=list(runs),
        flips=_flips(standing(flips), found, claims),
        judged=found.judged,
        ladder=ladder(found),
    )


def packed(data: Data) -> str:
    """``data`` as gzip in base64."""
    # Lone surrogates were made visible; the same input gives the same bytes.
    return base64.b64encode(gzip.compress(msgspec.json.encode(data), 7, mtime=0)).decode("ascii")


def unpacked(page: str) -> Data:
    """What `packed` put into a page; ValueError where that is not there, or of another version."""
    text = page.partition('id="data">')[2].partition("<")[0]
    try:
        return msgspec.json.decode(gzip.decompress(base64.b64decode(text)), type=Data)
    except (EOFError, OSError, binascii.Error, zlib.error, msgspec.MsgspecError) as error:
        raise ValueError(str(error)) from error


def _title(found: Collected) -> str:
    laws = [cell.result for cell in found.cells.values() if cell.result.kind is Kind.LAW]
    if not laws:
        return "Findings on the reference models"
    noun = texts.counted(len({law.name for law in laws}), "law")
    models = texts.counted(len({law.subject for law in laws}), "model")
    return f"{noun} on {models}: where they hold, and where they break"


def _asides(found: Collected, flips: Sequence[VerdictChange]) -> list[str]:
    """Sentences on what was run, what changed and what is left out."""
    laws = [cell.result for cell in found.cells.values() if cell.result.kind is Kind.LAW]
    counts = Counter(law.verdict for law in laws)
    versions = found.versions
    span = versions[0] if len(versions) == 1 else f"{versions[0]} to {versions[-1]}"
    noun = "one version" if len(versions) == 1 else f"{len(versions)} versions"
    decided = len(laws) - counts[Verdict.NOT_APPLICABLE]
    lines = []
    if laws:
        checks = f"{texts.spaced(decided)} {'check' if decided == 1 else 'checks'} of laws"
        told = [(Verdict.UPHELD, "upheld"), (Verdict.REFUTED, "refuted")]
        told.append((Verdict.INCONCLUSIVE, "not decided"))
        said = ", ".join(f"{texts.spaced(counts[verdict])} {name}" for verdict, name in told)
        lines.append(f"{checks} in {noun} of transformers ({span}): {said}.")
    if flips:
        lines.append(_counted(flips))
    if older := found.superseded:
        lines.append(
            f"{texts.spaced(older)} older {'result is' if older == 1 else 'results are'} left "
            "out: of a model, law, version and setting the most thorough counts, then the latest."
        )
    if found.unfinished:
        runs = texts.counted(found.unfinished, "run")
        lines.append(f"{runs} did not finish; what was recorded counts.")
    return [texts.visible(line, "\u202f") for line in lines]


def _counted(flips: Sequence[VerdictChange]) -> str:
    """How many flips there are, and how many of them were seen again."""
    stand = standing(flips)
    again = sum(flip.seen is Seen.AGAIN for flip in stand)
    lost = len(flips) - len(stand)
    told = f"{texts.spaced(len(stand))} {'flip' if len(stand) == 1 else 'flips'} between one"
    told += " version and the next"
    if again:
        some = f"{texts.spaced(again)} of them" if again < len(stand) else "all"
        told += f", {some} seen again with other examples"
    if lost:
        verb = "was not and is" if lost == 1 else "were not and are"
        told += f"; {texts.spaced(lost)} more {verb} left out"
    return f"{told}."


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
    seen = words.seen(result)
    inputs = [*seen.inputs.items(), *words.other_entries(seen)][:MOST_INPUTS]
    drawn = [
        (shown(label, 80), texts.visible(texts.clipped(t, room), "\n")) for label, t in inputs
    ]
    return [
        texts.number(seen.observed),
        texts.number(seen.allowed),
        shown(seen.where),
        shown(seen.replay, 2000) if room else "",
        drawn if room else [],
    ]


def _label(subject: str) -> str:
    return texts.visible(subject.removeprefix(TINY))


def _shape(found: Collected, subject: str) -> str:
    """What the model is, in a few words."""
    return texts.visible(words.shape(found.facts.get(subject, SubjectRecord())))


def _parts(claim: Result) -> tuple[str, str]:
    """A claim's sentence, and what stands in brackets at its end."""
    whole = texts.visible(claim.name)
    sentence, bracket, variant = whole.rpartition(" [")
    if not bracket or not variant.endswith("]"):
        return whole, ""
    return sentence, variant[:-1]


def _refused(
    found: Collected, subjects: Sequence[str], versions: Sequence[str]
) -> list[tuple[int, int, str]]:
    return [
        (subjects.index(subject), versions.index(version), shown(why))
        for (subject, version), why in found.refused.items()
    ]


def _run(run: RunRecord) -> tuple[str, str, str, str, str]:
    """(date, versions in words, profile, seed, suite)."""
    versions = [v for v in words.versions(run) if v.split()[0] in ("python", "torch")]
    return (
        texts.visible(str(run.started or "")[:10]),
        texts.visible(", ".join(versions)),
        texts.visible(str(run.profile)),
        texts.visible(str(run.seed)),
        texts.visible(str(run.suite)),
    )


def _flips(
    flips: Sequence[VerdictChange], found: Collected, claims: Sequence[Result]
) -> list[tuple[int, int, int, int, int, int, int]]:
    """[setting, law, subject, version before, version after] as indices; 1 if it is bad after;
    1 if it was seen again.
    """
    places = [
        {name: i for i, name in enumerate(names)}
        for names in (found.settings, [c.name for c in claims], found.subjects, found.versions)
    ]
    return [
        (
            places[0][f.setting],
            places[1][f.name],
            places[2][f.subject],
            places[3][f.before],
            places[3][f.after],
            int(f.verdict is Verdict.REFUTED),
            int(f.seen is Seen.AGAIN),
        )
        for f in flips
    ]
