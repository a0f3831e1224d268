"""Two runs to compare, and the command `assay invert` in this process."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from assay.harness.cli import main as command_line
from assay.harness.models.subject import Subject
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.compared import a_finding, a_law, kept
from assay.harness.tests.support.comparing import LAWS
from assay.harness.tests.support.inverted import Outcome, Run, load


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """Six laws and a finding, all upheld."""
    return kept(tmp_path / "one.sqlite", [*LAWS, a_finding(1)])


@pytest.fixture
def after(tmp_path: Path) -> Path:
    """Law 0 is broken, law 1 not decided, law 2 has drifted, law 3 is gone, finding 2 is new."""
    results = [
        replace(LAWS[0], verdict=Verdict.REFUTED, margin=-2.0, sample={}, reason="it broke"),
        replace(LAWS[1], verdict=Verdict.INCONCLUSIVE),
        a_law(2, moved=-0.6),
        *LAWS[4:],
        *(a_finding(1), a_finding(2)),
    ]
    return kept(tmp_path / "other.sqlite", results, dtype="bfloat16")


@pytest.fixture
def assay(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `assay` with these arguments in this process."""

    def run(*arguments: object) -> Outcome:
        code = command_line.main([*map(str, arguments)])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


@pytest.fixture
def invert(monkeypatch: pytest.MonkeyPatch, assay: Run) -> Run:
    """Runs ``invert`` with these arguments in this process; models are loaded once."""
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(command_line, "load", load)
    return partial(assay, "invert")


@pytest.fixture
def use_subject(monkeypatch: pytest.MonkeyPatch) -> Callable[[Subject], None]:
    """Makes every ``--model`` a subject of the test's own."""
    return lambda subject: monkeypatch.setattr(command_line, "load", lambda *_: subject)
