"""Repeats flips: their claims once more, with other examples, in both versions of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from assay.harness.checking.profiles import PROFILES
from assay.harness.cli.matrix import PACKAGE, Matrix, Row, Settings
from assay.harness.report.atlas.collect import Collected
from assay.harness.report.atlas.flips import Flip, Seen
from assay.harness.results.errors import BadInput
from assay.harness.runners.environments import CannotInstall, Environment

SPARE = 12
"""So many checks that nobody asked for cost less than another start of pytest."""

Had = Callable[[str], Environment]
"""The environment with a version of transformers; raises `CannotInstall`."""

Where = tuple[str, str, str, str | None, str | None]
"""(version, device, dtype, attention implementation, what ``--attends`` says)."""


@dataclass(frozen=True)
class Batch:
    """One run of pytest: every one of the ``claims`` on every one of the ``subjects``."""

    where: Where
    subjects: Sequence[str]
    claims: Sequence[str]


def unrepeated(flips: Sequence[Flip], found: Collected, profile: str, seed: int) -> list[Flip]:
    """Flips that were not seen again, and not looked for with this profile and seed either."""
    attempt = list(PROFILES).index(profile), seed
    return [
        flip
        for flip in flips
        if flip.seen is not Seen.AGAIN
        and not all(
            attempt in found.tries[flip.setting, flip.subject, flip.name, version]
            for version in (flip.before, flip.after)
        )
    ]


def batches(flips: Sequence[Flip], found: Collected) -> list[Batch]:
    """What is to be run for ``flips``, version by version, in few runs."""
    wanted: dict[Where, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for flip in flips:
        for version in (flip.before, flip.after):
            cell = found.cells[flip.setting, flip.subject, flip.name, version]
            run = found.runs[cell.run]
            device, said = run["device"].split(" ")[0], (run.get("attention"), run.get("attends"))
            where = version, device, run["dtype"], *said
            wanted[where][flip.subject].add(f"{cell.result.id}:{flip.name}")
    age = {version: place for place, version in enumerate(found.versions)}
    places = sorted(wanted, key=lambda where: (age[where[0]], *map(str, where)))
    return [
        Batch(where, *each) for where in places for each in grouped(wanted[where], spare=SPARE)
    ]


def grouped(
    wanted: Mapping[str, Set[str]], spare: int
) -> list[tuple[Sequence[str], Sequence[str]]]:
    """(subjects, claims) that have every claim of ``wanted`` on its subject.

    Subjects with other claims are put together where at most ``spare`` more checks come of it.
    """
    groups: list[tuple[list[str], set[str]]] = []
    for subject, claims in sorted(wanted.items(), key=lambda item: (-len(item[1]), item[0])):
        for subjects, joined in groups:
            more = (len(subjects) + 1) * len(joined | claims)
            if more - len(subjects) * len(joined) - len(claims) <= spare:
                subjects.append(subject)
                joined |= claims
                break
        else:
            groups.append(([subject], set(claims)))
    return [(sorted(subjects), sorted(claims)) for subjects, claims in groups]


def repeat(
    todo: Sequence[Batch],
    path: Path,
    profile: str,
    seed: int,
    had: Had,
    run: Callable[[list[str]], int],
) -> Iterator[tuple[Batch, Row]]:
    """Run the batches into the evidence file ``path``; what came of each, as it is done.

    What was run to its end before is not run again.  A version that cannot be had, or a run that
    breaks, is told in its row, and the others go on.
    """
    for batch in todo:
        version, device, dtype, attention, attends = batch.where
        row = Row(version)
        settings = Settings(
            profile,
            seed,
            batch.claims,
            device=device,
            dtype=dtype,
            attention=attention,
            attends=attends,
            marker="",
        )
        matrix = Matrix(path, batch.subjects, settings, ["--tb=no", "-q"], run)
        try:
            matrix.fill(row, had(version))
        except CannotInstall as error:
            row.why = f"{PACKAGE} {version} cannot be installed: {error}"
        except BadInput as error:
            row.why = str(error)
        yield batch, row
