"""Runs the claims whose verdicts changed once more, with other examples, in both versions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from assay.harness.checking.profiles import PROFILES
from assay.harness.comparison.changes import Repetition, VerdictChange
from assay.harness.report.atlas.collect import Collected
from assay.harness.results.errors import BadInput
from assay.harness.runners import runner
from assay.harness.runners.environments import CannotInstall, Environment
from assay.harness.runners.resumable import PACKAGE, Resumable
from assay.harness.runners.runner import FAILED, Outcome, Settings, Start

SPARE = 12
"""How many superfluous checks cost less than another start of pytest."""

Prepare = Callable[[str], Environment]
"""The environment with a version of transformers; raises `CannotInstall`."""

Where = tuple[str, str, str, str | None, str | None]
"""(version, device, dtype, attention implementation, value of ``--attends``)."""


@dataclass(frozen=True)
class Repeat:
    """One run of pytest: every one of the ``claims`` on every one of the ``subjects``."""

    where: Where
    subjects: Sequence[str]
    claims: Sequence[str]

    def settings(self, profile: str, seed: int) -> Settings:
        """The settings of the run."""
        _, device, dtype, attention, attends = self.where
        return Settings(
            profile=profile,
            seed=seed,
            claims=self.claims,
            device=device,
            dtype=dtype,
            attention=attention,
            attends=attends,
        )


def unrepeated(
    flips: Sequence[VerdictChange], collected: Collected, profile: str, seed: int
) -> list[VerdictChange]:
    """Changes that no repeat confirmed, and without a repeat of this profile and seed."""
    attempt = list(PROFILES).index(profile), seed
    return [
        flip
        for flip in flips
        if flip.repetition is not Repetition.AGAIN
        and not all(
            attempt in collected.tries[flip.setting, flip.subject, flip.name, version]
            for version in (flip.before, flip.after)
        )
    ]


def repeats(flips: Sequence[VerdictChange], collected: Collected) -> list[Repeat]:
    """The runs that repeat ``flips``, version by version, as few as possible."""
    claims_by_run: dict[Where, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for flip in flips:
        for version in (flip.before, flip.after):
            cell = collected.cells[flip.setting, flip.subject, flip.name, version]
            run = collected.runs[cell.run]
            device, attention = run.device.split(" ")[0], (run.attention, run.attends)
            where = version, device, run.dtype_of(flip.subject), *attention
            claims_by_run[where][flip.subject].add(f"{cell.result.id}:{flip.name}")
    age = {version: index for index, version in enumerate(collected.versions)}
    runs = sorted(claims_by_run, key=lambda where: (age[where[0]], *map(str, where)))
    return [
        Repeat(where, *each)
        for where in runs
        for each in grouped(claims_by_run[where], spare=SPARE)
    ]


def grouped(
    claims_by_subject: Mapping[str, Set[str]], spare: int
) -> list[tuple[Sequence[str], Sequence[str]]]:
    """(subjects, claims) that have every claim of ``claims_by_subject`` on its subject.

    Subjects with other claims share a group where that adds at most ``spare`` checks.
    """
    groups: list[tuple[list[str], set[str]]] = []
    for subject, claims in sorted(
        claims_by_subject.items(), key=lambda item: (-len(item[1]), item[0])
    ):
        for subjects, shared in groups:
            checks = (len(subjects) + 1) * len(shared | claims)
            if checks - len(subjects) * len(shared) - len(claims) <= spare:
                subjects.append(subject)
                shared |= claims
                break
        else:
            groups.append(([subject], set(claims)))
    return [(sorted(subjects), sorted(claims)) for subjects, claims in groups]


def repeat(
    todo: Sequence[Repeat],
    path: Path,
    profile: str,
    seed: int,
    prepare: Prepare,
    show: IO[str] | None = None,
    start: Start = runner.process,
) -> Iterator[tuple[Repeat, Outcome]]:
    """Run the repeats into the evidence file ``path``, and yield each with its outcome.

    Finished runs are not repeated.  If a version cannot be installed, or a run breaks, its
    outcome says so, and the others continue.
    """
    for each in todo:
        version, settings = each.where[0], each.settings(profile, seed)
        claims = Resumable(path, each.subjects, settings, ["--tb=no", "-q"], show, start)
        try:
            yield each, claims.run(prepare(version))
        except CannotInstall as error:
            yield each, Outcome(FAILED, f"{PACKAGE} {version} cannot be installed: {error}")
        except BadInput as error:
            yield each, Outcome(FAILED, str(error))
