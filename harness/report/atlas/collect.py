"""From evidence files to one cell for each model, claim, version and setting.

That is the result of the most thorough profile, and of these the latest.

Models that could not be made leave no claims.  Whoever runs a sweep may say so in the evidence
all the same, by a run whose record has ``refused``, why by the subject's name::

    run = describe_run(Options(), "quick", 0)
    run.refused = {"tiny:new_type": "why"}
    evidence.begin(run)
    evidence.finish(run.id, 4)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from assay.harness.checking.profiles import PROFILES
from assay.harness.comparison.changes import Search
from assay.harness.report import words
from assay.harness.results import expectation_files, expectations
from assay.harness.results.errors import BadInput
from assay.harness.results.evidence import Evidence
from assay.harness.results.evidence_file import damaged
from assay.harness.results.expectations import Expectations
from assay.harness.results.records import Counterexample, RunRecord, SubjectRecord
from assay.harness.results.specs import ModelKind, ModelSpec
from assay.harness.results.verdicts import Kind, Result, Verdict

TINY = "tiny:"
"""How the names of tiny models of a model type begin."""

Key = tuple[str, str, str, str]
"""(setting, subject, claim's name, version)."""

Attempt = tuple[int, int]
"""(profile as its place among `PROFILES`, -1 for one that is not known any more; seed)."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What is shown of a claim on a subject, in one version and setting."""

    result: Result
    version: str
    setting: str
    digest: str
    run: int
    judgement: str | None


@dataclass
class Collected:
    """All that the atlas is made of.

    ``cells`` have what is shown, ``tries`` what came of every profile and seed that was tried;
    ``refused`` says by (subject, version) why a model could not be made; ``runs`` are the records
    that cells point to; ``superseded`` counts results that one of another run has replaced, as it
    is later or more thorough; ``judged`` says whether results were held against expectations.
    What is derived is kept once it is asked for.
    """

    cells: dict[Key, Cell] = field(default_factory=dict)
    tries: dict[Key, dict[Attempt, Search]] = field(default_factory=dict)
    refused: dict[tuple[str, str], str] = field(default_factory=dict)
    runs: list[RunRecord] = field(default_factory=list)
    superseded: int = 0
    judged: bool = False

    @property
    def unfinished(self) -> int:
        """How many runs never came to their end."""
        return sum(run.finished is None for run in self.runs)

    @cached_property
    def versions(self) -> list[str]:
        """Versions of transformers, the oldest first."""
        found = {key[3] for key in self.cells} | {version for _, version in self.refused}
        return sorted(found, key=_age)

    @cached_property
    def settings(self) -> list[str]:
        """Precision, device and the like; the one with the most results first."""
        counts: dict[str, int] = {}
        for setting, *_ in self.cells:
            counts[setting] = counts.get(setting, 0) + 1
        return sorted(counts, key=lambda each: (-counts[each], each))

    @cached_property
    def subjects(self) -> list[str]:
        """Model types by name, then other models, smaller ones first."""
        found = {key[1] for key in self.cells} | {subject for subject, _ in self.refused}
        return sorted(
            found, key=lambda s: (not s.startswith(TINY), s.startswith(TINY) or self.size(s), s)
        )

    @cached_property
    def claims(self) -> list[Result]:
        """One result of every claim, as the catalogue orders them."""
        some: dict[str, Result] = {}
        for cell in self.cells.values():
            some.setdefault(cell.result.name, cell.result)
        return sorted(some.values(), key=words.catalogue_order)

    @cached_property
    def facts(self) -> dict[str, SubjectRecord]:
        """What is known of a subject by its name, from the latest run that says it."""
        told: dict[str, SubjectRecord] = {}
        for run in self.runs:
            told |= run.subjects
        return told

    def size(self, subject: str) -> int:
        """The number of a subject's parameters; 0 where no run says it."""
        return self.facts.get(subject, SubjectRecord()).parameters or 0

    def types(self, subject: str) -> set[str]:
        """The model types that a subject goes by: its configuration's, and what its name says.

        A tiny model's name has its type: ``tiny:mamba``, ``tiny:causal:bert:1``.
        """
        spec = ModelSpec.recorded(subject)
        named = {spec.name} if spec.kind is ModelKind.TINY else set()
        return named | {self.facts.get(subject, SubjectRecord()).model_type or subject}


def collect(paths: Iterable[Path], expected: Path | None = None) -> Collected:
    """Read evidence files, and hold every result against the expectations in a folder, if given.

    Raises `BadInput` for a path that is no evidence file, and where there is no result at all.
    """
    found = Collected(judged=expected is not None)
    best: dict[Key, _Found] = {}
    paths = list(paths)
    for path in paths:
        with Evidence.read(path) as evidence:
            _read(evidence, found, best)
    if not best:
        named = ", ".join(map(str, paths))
        raise BadInput(f"evidence {named}: holds no result; run claims with --evidence first")
    if expected is not None and not expected.is_dir():
        raise BadInput(f"expectations {expected}: is not a folder")
    judges = _Judges(expectation_files.load(expected)) if expected is not None else None
    for key, held in best.items():
        row, (setting, _, _, version) = held.row, key
        result = _result(row)
        judgement = judges.told(result, row["dtype"]) if judges else None
        found.cells[key] = Cell(result, version, setting, row["digest"], held.run, judgement)
        found.tries[key] = held.tries
    made = {(subject, version) for _, subject, _, version in found.cells}
    found.refused = {key: why for key, why in found.refused.items() if key not in made}
    return found


@dataclass(slots=True)
class _Found:
    """The best result of a key so far, and the latest of each attempt."""

    rank: tuple[int, str]
    run: int
    row: dict[str, Any]
    tries: dict[Attempt, Search]


def _read(evidence: Evidence, found: Collected, best: dict[Key, _Found]) -> None:
    """Add what a file holds; of two results of one key the better one counts."""
    known = {run.id: i for i, run in enumerate(found.runs)}
    places = {}
    for run in evidence.runs():
        # A run may be in two files, whole in one and cut short in the other.
        place = known.setdefault(run.id, len(found.runs))
        if place == len(found.runs):
            found.runs.append(run)
        elif run.finished is not None:
            found.runs[place] = run
        places[run.id] = (place, setting_of(run), version_of(run), attempt_of(run))
        for subject, why in run.refused.items():
            found.refused[subject, version_of(run)] = str(why)
    for row in evidence.every():
        if row["run"] not in places:
            raise damaged(evidence.path, f"results of {row['run']!r}, which is no run")
        place, setting, version, attempt = places[row["run"]]
        key = setting, row["subject"], row["name"], version
        rank = attempt[0], row["recorded"]
        held = best.get(key)
        if held is None:
            best[key] = _Found(rank, place, row, {attempt: Search.of(row)})
            continue
        found.superseded += held.run != place
        if rank >= held.rank:
            held.rank, held.run, held.row = rank, place, row
        if attempt not in held.tries or row["recorded"] >= held.tries[attempt].recorded:
            held.tries[attempt] = Search.of(row)


def attempt_of(run: RunRecord) -> Attempt:
    """How thoroughly a run looked, and with which examples."""
    names, profile, seed = list(PROFILES), run.profile, run.seed
    place = names.index(profile) if profile in names else -1
    return place, seed if isinstance(seed, int) else 0


def version_of(run: RunRecord) -> str:
    """The version of transformers of a run."""
    return str(run.versions.get("transformers") or "unknown")


def setting_of(run: RunRecord) -> str:
    """What else two results must share to be of the same thing: ``float32, cpu``."""
    told = [run.dtype, run.device, run.attention, run.allocation]
    told += [] if run.rounding is None else [f"rounding {run.rounding}"]
    return ", ".join(str(part) for part in told if part)


def _result(row: dict[str, Any]) -> Result:
    seen = row.get("counterexample")
    return Result(
        row["claim"],
        row["name"],
        Kind(row["kind"]),
        row["subject"],
        Verdict(row["verdict"]),
        observed=row["observed"],
        bound=row["bound"],
        margin=row["margin"],
        interval=tuple(row["interval"]) if "interval" in row else None,
        examples=row["examples"],
        reason=row.get("reason", ""),
        counterexample=None if seen is None else Counterexample.from_json(seen),
        details=row.get("details", {}),
    )


class _Judges:
    """Expectations by subject: most of them are about others, and there are many results."""

    def __init__(self, every: Mapping[str, Expectations]) -> None:
        self.every = every
        self._of: dict[str, dict[str, Expectations]] = {}
        self._told: dict[tuple[str, str, str, Verdict, str], str] = {}

    def told(self, result: Result, dtype: str) -> str:
        """Whether the result is as expected, and why, in a sentence."""
        key = result.subject, result.id, result.name, result.verdict, dtype
        if key not in self._told:
            if result.subject not in self._of:
                mine = {m: each for m, each in self.every.items() if each.fits(result.subject)}
                self._of[result.subject] = mine
            self._told[key] = self._judge(self._of[result.subject], result, dtype)
        return self._told[key]

    @staticmethod
    def _judge(every: Mapping[str, Expectations], result: Result, dtype: str) -> str:
        bare = Result(result.id, result.name, result.kind, result.subject, result.verdict)
        judged = expectations.judge_result(every, bare, dtype)
        if judged.ok:
            return f"as expected: {judged.reason}" if judged.reason else "as expected"
        what = f"{bare.id} ({bare.name}) on {bare.subject} is {bare.verdict}"
        why = judged.message.removeprefix(what).lstrip(", ")
        why = why.removeprefix("and ").removeprefix("but ")
        return f"{judged.status}: {why}" if why else judged.status


def _age(version: str) -> tuple[Any, ...]:
    try:
        return 1, Version(version), version
    except InvalidVersion:
        return 0, Version("0"), version
