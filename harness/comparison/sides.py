"""Reads runs to compare, by the names that a user gives, from evidence or JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from assay.harness.results.errors import BadInput
from assay.harness.results.evidence import Evidence
from assay.harness.results.evidence_file import MAGIC
from assay.harness.results.records import RunRecord, SubjectRecord
from assay.harness.results.schema import read_json
from assay.harness.results.verdicts import Result

Key = tuple[str, str, str]
"""A claim's number, its name, and the subject's name."""

NUMBER = re.compile(r"-?[0-9]{1,5}")
"""The number of a run; a longer one is an id."""

LEAST_PREFIX = 4
"""Minimum digits of an id to name a run."""

ALL = "all"
"""In place of a run's number: every finished run of a file."""


@dataclass(frozen=True)
class Side:
    """One run: its name on the command line, its record, and its results.

    Or ``runs`` of them joined into one (`harness.comparison.joining`).  ``others`` is the number
    of finished runs of the same file that the name leaves out implicitly.
    """

    name: str
    run: RunRecord
    rows: Mapping[Key, Result]
    runs: int = 1
    others: int = 0

    @cached_property
    def subjects(self) -> dict[str, None]:
        """The models that it has results on, in their order."""
        return dict.fromkeys(subject for *_, subject in self.rows)

    def digest(self, subject: str) -> str:
        """The SHA-256 of a subject's configuration and weights."""
        return self._described(subject).digest

    def missing(self, subject: str) -> Mapping[str, str]:
        """The capabilities that a subject lacks, each with the reason."""
        return self._described(subject).missing

    def _described(self, subject: str) -> SubjectRecord:
        return self.run.subjects.get(subject) or SubjectRecord()


def file_of(name: str) -> Path:
    """The file of a side, which may name a run in it."""
    return _split(name)[0]


def read(name: str) -> list[Side]:
    """The run that ``name`` means, or all of them, as they ended; raises `BadInput`.

    ``FILE``        the latest finished run of an evidence file, or a JSON report
    ``FILE@3``      its third run, from the oldest; ``FILE@-1`` is the last
    ``FILE@1f0c``   the run whose id begins so
    ``FILE@all``    every finished run
    """
    path, which = _split(name)
    if not path.is_file():  # a pipe has no end, a device none either
        raise BadInput(f"{path}: {'not a file' if path.exists() else 'no such file'}")
    if not _is_sqlite(path):
        if which is not None:
            raise BadInput(
                f"{name}: {path} is not an SQLite file, so no evidence with runs to choose"
            )
        run, results = read_json(path)
        sides = [Side(name, run, _by_key(results))]
    else:
        with Evidence.read(path) as evidence:
            if not (runs := evidence.runs()):
                raise BadInput(f"{path}: holds no run")
            chosen = _ended(path, runs) if which == ALL else [_chosen(path, runs, which)]
            others = len(_ended(path, runs)) - 1 if which is None else 0
            sides = [
                Side(name, run, _by_key(evidence.results(run.id)), others=others) for run in chosen
            ]
    if not any(side.rows for side in sides):
        none = "no run has" if which == ALL else "the run has no"
        raise BadInput(f"{name}: {none} results")
    return sides


def _split(name: str) -> tuple[Path, str | None]:
    """File and run; a file whose own name has an @ is a file."""
    file, at, which = name.rpartition("@")
    return (Path(file), which) if at and not Path(name).exists() else (Path(name), None)


def _is_sqlite(path: Path) -> bool:
    """Whether its first bytes say so; an empty file is an empty database."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) in (MAGIC, b"")
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror or error}") from error


def _by_key(results: Iterable[Result]) -> dict[Key, Result]:
    return {(each.id, each.name, each.subject): each for each in results}


def _ended(path: Path, runs: list[RunRecord]) -> list[RunRecord]:
    """The finished runs, in the order in which they ended."""
    ended = [run for run in runs if run.finished is not None]
    if not ended:
        raise BadInput(f"{path}: no run in it finished; name one as {path}@N")
    return sorted(ended, key=lambda run: run.finished or "")


def _chosen(path: Path, runs: list[RunRecord], which: str | None) -> RunRecord:
    listed = f"`assay runs {path}` lists them"
    if which is None:
        return _ended(path, runs)[-1]
    if NUMBER.fullmatch(which):
        number = int(which)
        if not 1 <= abs(number) <= len(runs):
            raise BadInput(f"{path}@{which}: there are {len(runs)} runs; {listed}")
        return runs[number - 1 if number > 0 else number]
    matches = [run for run in runs if len(which) >= LEAST_PREFIX and run.id.startswith(which)]
    if len(matches) != 1:
        count = f"{len(matches)} runs have" if matches else "no run has"
        raise BadInput(f"{path}@{which}: {count} an id that begins so; {listed}")
    return matches[0]
