"""What happens to runs that are killed: the plans of kills, and what must be true after each.

The runs themselves are in `harness.tests.support.chains`.
"""

from __future__ import annotations

import re
import shutil
import signal
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from assay.harness.results.verdicts import Verdict

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True)
class Kill:
    """A signal, sent once the share ``at`` of all claims has been reported, and ``delay`` seconds.

    The victim is the ``run`` (of workers their controlling process), its whole process ``group``,
    as a terminal does it, or a single ``worker``.
    """

    signal: signal.Signals
    at: float
    delay: float
    victim: str = "run"


@dataclass(frozen=True)
class Plan:
    """One run: in how many workers, and which signals it gets."""

    kills: tuple[Kill, ...] = ()
    workers: int = 0

    @property
    def arguments(self) -> list[str]:
        """Its options."""
        return ["-n", str(self.workers)] if self.workers else []


def few(draw: Random) -> list[Plan]:
    """Six kills at little cost: four serial runs, and one of two that loses a worker first."""
    signals = [*SIGNALS, draw.choice(SIGNALS)]
    draw.shuffle(signals)
    instants = _instants(draw, 5)
    with_workers = draw.randrange(5)
    plans = []
    for i in range(5):
        if i == with_workers:
            at = instants.pop(0)
            first = _kill(draw, draw.choice(SIGNALS[:2]), at, "worker")
            # Soon: a worker that takes the place of the first costs seconds.
            then = _kill(draw, draw.choice(SIGNALS), min(0.95, at + draw.uniform(0.02, 0.1)))
            plans.append(Plan((first, then), 2))
        else:
            kill = _kill(draw, signals.pop(), instants.pop(0))
            plans.append(Plan((kill,)))
    return plans


def many(draw: Random, count: int) -> list[Plan]:
    """So many kills: serial runs, two and four workers, groups, and workers that die alone."""
    instants = _instants(draw, count)
    plans = []
    while instants:
        workers = draw.choice([0, 0, 0, 2, 2, 4])
        kills = []
        if workers and len(instants) > 1 and draw.random() < 0.5:
            kills.append(_kill(draw, draw.choice(SIGNALS), instants.pop(0), "worker"))
        # A worker that gets Ctrl-C interrupts the run by itself.
        if not kills or kills[0].signal is not signal.SIGINT:
            victim = draw.choice(["run", "run", "group"])
            kills.append(_kill(draw, draw.choice(SIGNALS), instants.pop(0), victim))
        plans.append(Plan(tuple(kills), workers))
    return plans


def _instants(draw: Random, count: int) -> list[float]:
    # The summary, which follows the last claim, is not interrupted.
    return sorted(draw.uniform(0, 0.95) for _ in range(count))


def _kill(draw: Random, which: signal.Signals, at: float, victim: str = "run") -> Kill:
    delay = draw.choice([0.0, draw.uniform(0, 0.05), draw.uniform(0, 0.5)])
    return Kill(which, at, delay, victim)


# -- what is shown, and what is stored ------------------------------------------------------------

_WORDS = "|".join(sorted(Verdict, key=len, reverse=True))
_LINE = re.compile(rf"^\[ *\d+/\d+\] (\S+) on \S+, ({_WORDS})\b", re.MULTILINE)


def reported(output: str) -> Counter[str]:
    """How many claims a run printed, by ``ID verdict``."""
    return Counter(f"{id} {verdict}" for id, verdict in _LINE.findall(output))


@dataclass(frozen=True)
class Stored:
    """What an evidence file holds.

    ``runs`` are (id, finish, exit code); ``rows`` are (claim, name, verdict, result as JSON);
    ``integrity`` is SQLite's word, "ok" for a sound file.
    """

    runs: list[tuple[str, str | None, int | None]] = field(default_factory=list)
    rows: list[tuple[str, str, str, str]] = field(default_factory=list)
    integrity: str = "ok"

    @classmethod
    def of(cls, path: Path) -> Stored:
        """Read a copy, as the next to open the file would: an unfinished write is rolled back."""
        if not path.exists():
            return cls()
        with tempfile.TemporaryDirectory() as folder:
            for each in path.parent.glob(f"{path.name}*"):
                shutil.copy(each, folder)
            with closing(sqlite3.connect(Path(folder, path.name))) as db:
                try:
                    return cls._read(db)
                except sqlite3.DatabaseError as error:
                    return cls(integrity=str(error))

    @classmethod
    def _read(cls, db: sqlite3.Connection) -> Stored:
        integrity = "; ".join(row[0] for row in db.execute("PRAGMA integrity_check"))
        tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if integrity != "ok" or not tables:  # without tables: killed while it was made
            return cls(integrity=integrity)
        runs = db.execute("SELECT id, run ->> 'finished', run ->> 'exit' FROM runs").fetchall()
        rows = db.execute(
            "SELECT claim, name, result ->> 'verdict', result FROM claims"
        ).fetchall()
        return cls(runs, rows, integrity)

    @property
    def ended(self) -> bool:
        """Whether a run came to its end."""
        return any(finished for _, finished, _ in self.runs)

    @property
    def names(self) -> Counter[str]:
        """How many rows there are of each claim."""
        return Counter(name for _, name, *_ in self.rows)

    @property
    def counts(self) -> Counter[str]:
        """The rows as `reported` counts what is printed."""
        return Counter(f"{id} {verdict}" for id, _, verdict, _ in self.rows)


def losses(before: Stored, after: Stored, counts: Counter[str]) -> Iterator[str]:
    """What a run did to the evidence that no run may do, whenever it is killed."""
    if after.integrity != "ok":
        yield f"corrupt: {after.integrity}"
        return
    if lost := counts - after.counts:
        yield f"reported and not stored: {dict(lost)}"
    if gone := Counter(before.rows) - Counter(after.rows):
        yield f"stored before, and lost or changed: {[name for _, name, *_ in gone]}"
    if twice := [name for name, count in after.names.items() if count > 1]:
        yield f"stored twice: {twice}"
    if len(after.runs) > 1:
        yield f"{len(after.runs)} runs instead of one that was resumed"


def incomplete(stored: Stored, total: int) -> Iterator[str]:
    """What is wrong at the end, when one run has all ``total`` claims and is finished."""
    if len(stored.names) != total or set(stored.names.values()) != {1}:
        yield f"{len(stored.rows)} rows of {len(stored.names)} claims at the end, not {total}"
    if [finished is not None for _, finished, _ in stored.runs] != [True]:
        yield f"not one run that is finished: {stored.runs}"
