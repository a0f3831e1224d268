"""Whether the property that fuzzing checks can fail: each thing that must not be is noticed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.harness.tests.support.fuzzing import Room, Started

pytestmark = pytest.mark.nightly


def refuse(text: str = "error: no") -> int:
    print(text, file=sys.stderr)
    return 4


def crash(error: BaseException) -> int:
    raise error


def show_a_traceback() -> int:
    print("Traceback (most recent call last):")
    return 1


def hang() -> int:
    time.sleep(60)
    return 0


def write_and(code: int, name: str) -> int:
    Path(name).write_text("{}")
    return refuse() if code else 0


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (lambda: crash(KeyError("a bug")), "a traceback: "),
        (show_a_traceback, "a traceback"),
        (hang, "Hangs"),
        (lambda: sys.exit(3), "exit code 3"),
        (lambda: refuse(""), "0 lines of error"),
        (lambda: refuse("1\n2\n3\n4"), "4 lines of error"),
        (lambda: write_and(4, "given.json"), "changed: given.json"),
        (lambda: write_and(4, "out.json"), "changed: out.json"),
        (lambda: write_and(0, ".out.tmp"), "changed: .out.tmp"),
        (lambda: write_and(0, "out.json"), ""),
        (refuse, ""),
        (lambda: sys.exit(0), ""),
        (lambda: crash(Started()), ""),
    ],
)
def test_what_must_not_be_is_noticed(body: Callable[[], int], words: str, tmp_path: Path) -> None:
    here = Room(tmp_path)
    here.work.mkdir()
    (here.work / "given.json").write_text("[]")
    complaints = here.wrong(body, "harness", ["compare", "--json=out.json"], seconds=2.0)
    assert bool(complaints) is bool(words)
    assert words in "\n".join(complaints)
