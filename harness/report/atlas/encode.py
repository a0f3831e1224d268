"""The page's data: tables of strings and one index per cell, packed.

The page's script reads `Data` as JSON.  Compressed (gzip, base64) it takes some five bytes
per result.  A page can be rebuilt from it, with other defects and in another layout.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from assay.harness.comparison.changes import Repetition, VerdictChange
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
RESULTS = {letter: verdict for verdict, letter in LETTERS.items()}
UNBUILT, NOT_RUN = "b", "."

MOST_REASON = 300
MOST_INPUTS = 12


class Table:
    """Strings, each once, by index; the empty one is 0."""

    def __init__(self) -> None:
        self.strings: list[str] = [""]
        self._indices = {"": 0}

    def index(self, text: str) -> int:
        """The index of ``text``; adds it if it is new."""
        if text not in self._indices:
            self._indices[text] = len(self.strings)
            self.strings.append(text)
        return self._indices[text]


Explanation = tuple[str, str, list[int], list[int], list[str]]
"""[slug, title, laws, subjects, versions] of a defect; laws and subjects are indices."""


class Data(msgspec.Struct):
    """The data of an atlas from its evidence, without the texts of defects and changes.

    ``verdicts`` has a letter for every position of the cube setting × law × subject × version
    (`LETTERS`; a dot where nothing ran), ``columns`` an entry for every position with a
    result, in the cube's order.  Laws are [number, sentence, variant, kind], subjects [label,
    name, shape], ``types`` the model types that a subject goes by, flips [setting, law, subject,
    before, after, whether it is bad after, whether repeats showed it], ``refused`` [subject,
    version, why], ``defects`` as `view.explanations` has them.  ``superseded`` counts results
    that another one replaced, ``unfinished`` runs, ``unrepeated`` flips that repeats did not show.
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
    unfinished: int = 0
    unrepeated: int = 0


def encode(collected: Collected, flips: Sequence[VerdictChange], room: int) -> Data:
    """The evidence as a page's data, with at most ``room`` characters of a counterexample's input.

    With a ``room`` of 0 replay commands are left out, too.
    """
    claims, versions = collected.claims, collected.versions
    subjects, settings = collected.subjects, collected.settings
    strings = Table()
    digests = Table()
    letters: list[str] = []
    columns: dict[str, list[Any]] = {
        name: [] for name in ("observed", "bound", "margin", "examples", "reason", "run")
    } | {"digest": [], "judged": []}
    runs: dict[tuple[str, str, str, str, str], int] = {}
    of_run = [runs.setdefault(_run(run), len(runs)) for run in collected.runs]
    counterexamples: dict[int, list[Any]] = {}
    spans: dict[int, list[int]] = {}
    for setting in settings:
        for claim in claims:
            for subject in subjects:
                for version in versions:
                    cell = collected.cells.get((setting, subject, claim.name, version))
                    if cell is None:
                        refused = (subject, version) in collected.refused
                        letters.append(UNBUILT if refused else NOT_RUN)
                        continue
                    letters.append(LETTERS[cell.result.verdict])
                    at = len(columns["run"])
                    columns["run"].append(of_run[cell.run])
                    _add(columns, cell, strings, digests)
                    if cell.result.counterexample:
                        counterexamples[at] = _counterexample(cell.result, room)
                    if cell.result.kind is Kind.FINDING:
                        interval_text = intervals.estimate(
                            cell.result.observed, cell.result.interval
                        )[1]
                        claimed = intervals.claimed(cell.result)
                        spans[at] = [strings.index(interval_text), strings.index(shown(claimed))]
    data = Data(
        title="",
        asides=[],
        superseded=collected.superseded,
        subjects=[(_label(s), texts.visible(s), _shape(collected, s)) for s in subjects],
        types=[sorted(map(texts.visible, collected.types(subject))) for subject in subjects],
        laws=[(texts.visible(c.id), *_parts(c), str(c.kind)) for c in claims],
        versions=[*map(texts.visible, versions)],
        settings=[*map(texts.visible, settings)],
        verdicts="".join(letters),
        columns=columns,
        strings=strings.strings,
        digests=digests.strings,
        seen=counterexamples,
        spans=spans,
        refused=_refused(collected, subjects, versions),
        runs=list(runs),
        flips=_flips(standing(flips), collected, claims),
        judged=collected.judged,
        ladder=ladder(collected),
        unfinished=collected.unfinished,
        unrepeated=len(flips) - len(standing(flips)),
    )
    describe(data)
    return data


def pack(data: Data) -> str:
    """``data`` as gzip in base64."""
    # Lone surrogates were made visible; the same input gives the same bytes.
    return base64.b64encode(gzip.compress(msgspec.json.encode(data), 7, mtime=0)).decode("ascii")


def unpack(page: str) -> Data:
    """The data that `pack` put into a page; ValueError if missing or of another version."""
    text = page.partition('id="data">')[2].partition("<")[0]
    try:
        return msgspec.json.decode(gzip.decompress(base64.b64decode(text)), type=Data)
    except (EOFError, OSError, binascii.Error, zlib.error, msgspec.MsgspecError) as error:
        raise ValueError(str(error)) from error


def name(law: Sequence[str]) -> str:
    """A law's sentence with its variant, of its entry in the data."""
    return f"{law[1]} [{law[2]}]" if law[2] else law[1]


@dataclass(frozen=True)
class Spot:
    """One cell of the map, by its indices in the data's lists."""

    setting: int
    claim: int
    subject: int
    version: int
    verdict: Verdict


def spots(data: Data) -> Iterator[Spot]:
    """Every cell of the map that has a result."""
    amounts = [len(each) for each in (data.laws, data.subjects, data.versions)]
    for i, letter in enumerate(data.verdicts):
        if letter in RESULTS:
            rest, version = divmod(i, amounts[2])
            rest, subject = divmod(rest, amounts[1])
            yield Spot(*divmod(rest, amounts[0]), subject, version, RESULTS[letter])


def describe(data: Data) -> None:
    """Set the title, and the sentences on the checks, the changes and omissions."""
    checks = [spot for spot in spots(data) if data.laws[spot.claim][3] == Kind.LAW]
    data.title = "Findings on the reference models"
    lines = []
    if checks:
        models = texts.counted(len({spot.subject for spot in checks}), "model")
        noun = texts.counted(len({spot.claim for spot in checks}), "law")
        data.title = f"{noun} on {models}: where they hold, and where they break"
        lines.append(_checks(Counter(spot.verdict for spot in checks), data.versions))
    if data.flips or data.unrepeated:
        lines.append(
            _counted(len(data.flips), sum(flip[6] for flip in data.flips), data.unrepeated)
        )
    if older := data.superseded:
        lines.append(
            f"{texts.spaced(older)} older {'result is' if older == 1 else 'results are'} left "
            "out: of a model, law, version and setting the most thorough counts, then the latest."
        )
    if data.unfinished:
        runs = texts.counted(data.unfinished, "run")
        lines.append(f"{runs} did not finish; what was recorded counts.")
    data.asides = [texts.visible(line, "\u202f") for line in lines]


def _checks(counts: Counter[Verdict], versions: Sequence[str]) -> str:
    """The number of checks of laws, by verdict."""
    span = versions[0] if len(versions) == 1 else f"{versions[0]} to {versions[-1]}"
    noun = "one version" if len(versions) == 1 else f"{len(versions)} versions"
    decided = counts.total() - counts[Verdict.NOT_APPLICABLE]
    checks = f"{texts.spaced(decided)} {'check' if decided == 1 else 'checks'} of laws"
    verdicts = [(Verdict.UPHELD, "upheld"), (Verdict.REFUTED, "refuted")]
    verdicts.append((Verdict.INCONCLUSIVE, "not decided"))
    totals = ", ".join(f"{texts.spaced(counts[verdict])} {said}" for verdict, said in verdicts)
    return f"{checks} in {noun} of transformers ({span}): {totals}."


def _counted(stand: int, again: int, lost: int) -> str:
    """The number of flips, and how many of them repeats showed again."""
    sentence = f"{texts.spaced(stand)} {'flip' if stand == 1 else 'flips'} between one"
    sentence += " version and the next"
    if again:
        some = f"{texts.spaced(again)} of them" if again < stand else "all"
        sentence += f", {some} seen again with other examples"
    if lost:
        verb = "was not and is" if lost == 1 else "were not and are"
        sentence += f"; {texts.spaced(lost)} more {verb} left out"
    return f"{sentence}."


def shown(text: str, most: int = MOST_REASON) -> str:
    """``text`` as the page shows it."""
    return texts.visible(texts.clipped(text, most))


def _add(columns: dict[str, list[Any]], cell: Cell, strings: Table, digests: Table) -> None:
    result = cell.result
    applies = result.verdict is not Verdict.NOT_APPLICABLE
    columns["observed"].append(texts.number(result.observed) if applies else 0)
    columns["bound"].append(texts.number(result.bound) if applies else 0)
    margin = intervals.clearance if result.kind is Kind.FINDING else texts.decades
    columns["margin"].append(strings.index(margin(result) if applies else ""))
    columns["examples"].append(result.examples)
    # The counterexample says the same, in numbers.
    reason = "" if result.counterexample and result.kind is Kind.LAW else result.reason
    columns["reason"].append(strings.index(shown(reason)))
    columns["digest"].append(digests.index(texts.visible(cell.digest[:12])))
    columns["judged"].append(strings.index(shown(cell.judgement or "")))


def _counterexample(result: Result, room: int) -> list[Any]:
    """[observed, allowed, where, replay, [[label, text], …]]."""
    example = words.counterexample(result)
    inputs = [*example.inputs.items(), *words.other_entries(example)][:MOST_INPUTS]
    drawn = [
        (shown(label, 80), texts.visible(texts.clipped(t, room), "\n")) for label, t in inputs
    ]
    return [
        texts.number(example.observed),
        texts.number(example.allowed),
        shown(example.where),
        shown(example.replay, 2000) if room else "",
        drawn if room else [],
    ]


def _label(subject: str) -> str:
    return texts.visible(subject.removeprefix(TINY))


def _shape(collected: Collected, subject: str) -> str:
    """The model's architecture and sizes in a few words."""
    return texts.visible(words.shape(collected.facts.get(subject, SubjectRecord())))


def _parts(claim: Result) -> tuple[str, str]:
    """A claim's sentence, and the variant in brackets at its end."""
    whole = texts.visible(claim.name)
    sentence, bracket, variant = whole.rpartition(" [")
    if not bracket or not variant.endswith("]"):
        return whole, ""
    return sentence, variant[:-1]


def _refused(
    collected: Collected, subjects: Sequence[str], versions: Sequence[str]
) -> list[tuple[int, int, str]]:
    return [
        (subjects.index(subject), versions.index(version), shown(why))
        for (subject, version), why in collected.refused.items()
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
    flips: Sequence[VerdictChange], collected: Collected, claims: Sequence[Result]
) -> list[tuple[int, int, int, int, int, int, int]]:
    """[setting, law, subject, version before, version after] as indices; 1 if it is bad after;
    1 if a repeat showed it again.
    """
    indices = [
        {name: i for i, name in enumerate(names)}
        for names in (
            collected.settings,
            [c.name for c in claims],
            collected.subjects,
            collected.versions,
        )
    ]
    return [
        (
            indices[0][f.setting],
            indices[1][f.name],
            indices[2][f.subject],
            indices[3][f.before],
            indices[3][f.after],
            int(f.verdict is Verdict.REFUTED),
            int(f.repetition is Repetition.AGAIN),
        )
        for f in flips
    ]
