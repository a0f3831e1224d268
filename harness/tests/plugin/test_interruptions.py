"""Whenever a run is killed, what it reported is stored, and every claim is there once in the end.

`tox -e nightly` kills sixty runs; ``--kills=200 --kill-seed=1`` kills others.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from assay.harness.results.evidence import Evidence
from assay.harness.tests.support import evidences
from assay.harness.tests.support.interruptions import (
    LAWS,
    Chain,
    Stored,
    incomplete,
    losses,
    plans,
    traceback,
)
from assay.harness.tests.support.sessions import ROOT, Project

pytestmark = pytest.mark.nightly

pytest.importorskip("xdist")

EACH, FEW = 10, 6
"""Kills in a chain: of ``--kills``, and without it."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test for each chain of kills."""
    if "chain" in metafunc.fixturenames:
        metafunc.parametrize("chain", range(max(1, -(-metafunc.config.option.kills // EACH))))


def test_what_a_killed_run_reported_is_stored_and_every_claim_is_there_once(
    chain: int, project: Project, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    option = request.config.option
    listed = project.run(*LAWS, "--collect-only", "-q", folder=ROOT).output
    total = sum("::" in line for line in listed.splitlines())
    draw = Random(f"{option.kill_seed} {chain}")
    drawn = plans(draw, min(EACH, option.kills - EACH * chain) if option.kills else FEW)
    runs = Chain(tmp_path / "chain", total)
    wrong = runs.follow(drawn)
    assert not wrong, "\n\n".join(wrong)
    assert 2 * runs.landed > len(drawn)


# The check can fail.


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Evidence of a finished run of forty claims, C0 to C39."""
    path = tmp_path / "evidence.sqlite"
    with Evidence.open(path) as store:
        store.begin(evidences.run_of("5.23.0", "m", id="r1"))
        for i in range(40):
            store.record("r1", evidences.law("m", id=f"C{i}", name=f"law {i}"), "ab" * 32)
        store.finish("r1", 0)
    return path


REPORTS = Counter(f"C{i} upheld" for i in range(40))


def faults(before: Stored, path: Path) -> list[str]:
    return [*losses(before, after := Stored.of(path), REPORTS), *incomplete(after, 40)]


def execute(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()


def lose_a_row(path: Path) -> None:
    execute(path, "DELETE FROM claims WHERE claim = 'C7'")


def corrupt(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[5 * 4096 : 6 * 4096] = bytes(4096)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lose_a_row, "reported and not stored: {'C7 upheld': 1}"),
        (corrupt, "corrupt: "),
    ],
)
def test_damage_is_noticed(path: Path, damage: Callable[[Path], None], words: str) -> None:
    before = Stored.of(path)
    assert faults(before, path) == []
    damage(path)
    assert any(fault.startswith(words) for fault in faults(before, path))


LOST = """\
  pytest.py:63: PytestUnraisableExceptionWarning: Exception ignored in: <function f at 0x7f>

  Traceback (most recent call last):
    File "junkdrawer.py", line 492, in gc_callback
      def gc_callback(

    File "interrupts.py", line 62, in _interrupt
      raise self.interrupt
  KeyboardInterrupt

"""


def test_a_traceback_is_noticed_unless_it_is_of_a_lost_interrupt() -> None:
    assert traceback(LOST) == ""
    assert traceback(LOST.replace("KeyboardInterrupt", "ValueError: 1"))
    assert traceback(LOST.replace("PytestUnraisableExceptionWarning", "Other"))
    assert traceback(f"{LOST}Traceback (most recent call last):\nKeyboardInterrupt\n")
    assert traceback("INTERNALERROR> 1")
