"""Whether the property that fuzzing checks can fail: each thing that must not be is noticed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.harness.tests.support.contained import Started
from assay.harness.tests.support.fuzzing import trial, wrong


def refuse(text: str = "error: no") -> int:
    print(text, file=sys.stderr)
    return 4


def crash() -> int:
    raise KeyError("a bug")


def show_a_traceback() -> int:
    print("Traceback (most recent call last):")
    return 1


def hang() -> int:
    time.sleep(60)
    return 0


def change_its_input() -> int:
    Path("given.json").write_text("{}")
    return refuse()


def leave_a_draft() -> int:
    Path(".out.tmp").touch()
    return refuse()


def run(body: Callable[[], int], root: Path, *arguments: str) -> list[str]:
    """What is wrong with a case that does this."""
    (root / "work").mkdir(parents=True)
    (root / "work" / "given.json").write_text("[]")
    return wrong(trial(body, root, seconds=2.0), "harness", arguments)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (crash, "a traceback: "),
        (show_a_traceback, "a traceback"),
        (hang, "Hangs"),
        (lambda: sys.exit(3), "exit code 3"),
        (lambda: refuse(""), "0 lines of error"),
        (lambda: refuse("1\n2\n3\n4"), "4 lines of error"),
        (change_its_input, "changed: work/given.json"),
        (leave_a_draft, "left behind: work/.out.tmp"),
    ],
)
def test_what_must_not_be_is_noticed(body: Callable[[], int], words: str, tmp_path: Path) -> None:
    assert words in "\n".join(run(body, tmp_path))


def test_an_output_is_noticed_unless_it_was_asked_for(tmp_path: Path) -> None:
    def write() -> int:
        Path("out.json").touch()
        return 0

    def write_and_refuse() -> int:
        write()
        return refuse()

    arguments = ("compare", "--json=out.json")
    assert run(write, tmp_path / "a", "compare") == ["left behind: work/out.json"]
    assert not run(write, tmp_path / "b", *arguments)
    assert run(write_and_refuse, tmp_path / "c", *arguments) == ["left behind: work/out.json"]


def test_what_is_refused_or_run_or_about_to_begin_is_well(tmp_path: Path) -> None:
    def start() -> int:
        raise Started

    bodies = (refuse, lambda: refuse("1\n2\n3"), lambda: 0, lambda: 1, lambda: sys.exit(0), start)
    for number, body in enumerate(bodies):
        assert not run(body, tmp_path / str(number))
