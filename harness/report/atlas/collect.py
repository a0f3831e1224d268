"""From evidence files to one cell for each model, claim, version and setting.

A cell has the result of the most thorough profile, and of these the latest.

Models that could not be built have no claims.  A sweep can record them in the evidence
by a run whose record has ``refused``, the reasons by the subject's name::

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
"""(profile as its index in `PROFILES`, -1 for one that no longer exists; seed)."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The shown result of a claim on a subject, in one version and setting."""

    result: Result
    version: str
    setting: str
    digest: str
    run: int
    judgement: str | None


@dataclass
class Collected:
    """The collected evidence of an atlas.

    ``cells`` have the shown results, ``tries`` the outcome of every profile and seed;
    ``refused`` says by (subject, version) why a model could not be built; ``runs`` are the records
    that cells point to; ``superseded`` counts results replaced by a later or more thorough one
    of another run; ``judged`` says whether results were compared with expectations.
    Derived properties are cached.
    """

    cells: dict[Key, Cell] = field(default_factory=dict)
    tries: dict[Key, dict[Attempt, Search]] = field(default_factory=dict)
    refused: dict[tuple[str, str], str] = field(default_factory=dict)
    runs: list[RunRecord] = field(default_factory=list)
    superseded: int = 0
    judged: bool = False

    @property
    def unfinished(self) -> int:
        """How many runs did not finish."""
        return sum(run.finished is None for run in self.runs)

    @cached_property
    def versions(self) -> list[str]:
        """Versions of transformers, the oldest first."""
        names = {key[3] for key in self.cells} | {version for _, version in self.refused}
        return sorted(names, key=age)

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
        names = {key[1] for key in self.cells} | {subject for subject, _ in self.refused}
        return sorted(
            names, key=lambda s: (not s.startswith(TINY), s.startswith(TINY) or self.size(s), s)
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
        """The record of each subject by its name, from the latest run that has it."""
        records: dict[str, SubjectRecord] = {}
        for run in self.runs:
            records |= run.subjects
        return records

    def size(self, subject: str) -> int:
        """The number of a subject's parameters; 0 where unknown."""
        return self.facts.get(subject, SubjectRecord()).parameters or 0

    def types(self, subject: str) -> set[str]:
        """The model types of a subject: its configuration's, and the one in its name.

        A tiny model's name has its type: ``tiny:mamba``, ``tiny:causal:bert:1``.
        """
        spec = ModelSpec.recorded(subject)
        if spec.variants:  # no other model of its type
            return {subject}
        named = {spec.name} if spec.kind is ModelKind.TINY else set()
        return named | {self.facts.get(subject, SubjectRecord()).model_type or subject}


def collect(paths: Iterable[Path], expected: Path | None = None) -> Collected:
    """Read evidence files, and compare results with the expectations in a folder, if any.

    Raises `BadInput` for a path that is not an evidence file, and where there is no result.
    """
    collected = Collected(judged=expected is not None)
    best: dict[Key, _Best] = {}
    paths = list(paths)
    for path in paths:
        with Evidence.read(path) as evidence:
            _read(evidence, collected, best)
    if not best:
        named = ", ".join(map(str, paths))
        raise BadInput(f"evidence {named}: holds no result; run claims with --evidence first")
    if expected is not None and not expected.is_dir():
        raise BadInput(f"expectations {expected}: is not a folder")
    judges = _Judges(expectation_files.load(expected)) if expected is not None else None
    for key, entry in best.items():
        row, (setting, _, _, version) = entry.row, key
        result = _result(row)
        judgement = judges.judgement(result, row["dtype"]) if judges else None
        collected.cells[key] = Cell(result, version, setting, row["digest"], entry.run, judgement)
        collected.tries[key] = entry.tries
    built = {(subject, version) for _, subject, _, version in collected.cells}
    collected.refused = {key: why for key, why in collected.refused.items() if key not in built}
    return collected


@dataclass(slots=True)
class _Best:
    """The best result of a key so far, and the latest of each attempt."""

    rank: tuple[int, str]
    run: int
    row: dict[str, Any]
    tries: dict[Attempt, Search]


def _read(evidence: Evidence, collected: Collected, best: dict[Key, _Best]) -> None:
    """Add the contents of a file; of two results of one key the better one counts."""
    indices = {run.id: i for i, run in enumerate(collected.runs)}
    runs: dict[str, tuple[int, str, str, Attempt]] = {}
    for run in evidence.runs():
        # A run may be in two files, whole in one and cut short in the other.
        index = indices.setdefault(run.id, len(collected.runs))
        if index == len(collected.runs):
            collected.runs.append(run)
        elif run.finished is not None:
            collected.runs[index] = run
        runs[run.id] = (index, setting_of(run), version_of(run), attempt_of(run))
        for subject, why in run.refused.items():
            collected.refused[subject, version_of(run)] = str(why)
    for row in evidence.every():
        if row["run"] not in runs:
            raise damaged(evidence.path, f"results of {row['run']!r}, which is no run")
        index, setting, version, attempt = runs[row["run"]]
        key = setting, row["subject"], row["name"], version
        rank = attempt[0], row["recorded"]
        entry = best.get(key)
        if entry is None:
            best[key] = _Best(rank, index, row, {attempt: Search.of(row)})
            continue
        collected.superseded += entry.run != index
        if rank >= entry.rank:
            entry.rank, entry.run, entry.row = rank, index, row
        if attempt not in entry.tries or row["recorded"] >= entry.tries[attempt].recorded:
            entry.tries[attempt] = Search.of(row)


def attempt_of(run: RunRecord) -> Attempt:
    """How thorough a run was, and its seed."""
    names, profile, seed = list(PROFILES), run.profile, run.seed
    index = names.index(profile) if profile in names else -1
    return index, seed if isinstance(seed, int) else 0


def version_of(run: RunRecord) -> str:
    """The version of transformers of a run."""
    return str(run.versions.get("transformers") or "unknown")


def setting_of(run: RunRecord) -> str:
    """What else comparable results must share: ``float32, cpu``."""
    parts = [run.dtype, run.device, run.attention, run.allocation]
    parts += [] if run.rounding is None else [f"rounding {run.rounding}"]
    return ", ".join(str(part) for part in parts if part)


def _result(row: dict[str, Any]) -> Result:
    example = row.get("counterexample")
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
        counterexample=None if example is None else Counterexample.from_json(example),
        details=row.get("details", {}),
    )


class _Judges:
    """Judges results; caches expectations by subject, as few fit one and results are many."""

    def __init__(self, every: Mapping[str, Expectations]) -> None:
        self.every = every
        self._of: dict[str, dict[str, Expectations]] = {}
        self._judgements: dict[tuple[str, str, str, Verdict, str], str] = {}

    def judgement(self, result: Result, dtype: str) -> str:
        """Whether the result is as expected, and why, in a sentence."""
        key = result.subject, result.id, result.name, result.verdict, dtype
        if key not in self._judgements:
            if result.subject not in self._of:
                mine = {m: each for m, each in self.every.items() if each.fits(result.subject)}
                self._of[result.subject] = mine
            self._judgements[key] = self._judge(self._of[result.subject], result, dtype)
        return self._judgements[key]

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


def age(version: str) -> tuple[Any, ...]:
    """A sort key of versions, the oldest first."""
    try:
        return 1, Version(version), version
    except InvalidVersion:
        return 0, Version("0"), version
