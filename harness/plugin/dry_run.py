"""`--dry-run`: lists which claims apply to the models, and checks nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from assay.harness.checking.claim import Claim
from assay.harness.checking.profiles import Profile
from assay.harness.models.subject import Subject
from assay.harness.results.verdicts import Kind

LISTED = "assay-listed"
"""The property of a report that carries a claim's entry, as a dict: xdist sends plain types."""


@dataclass(frozen=True)
class Entry:
    """A claim on a subject: why it does not apply, or the examples that it takes."""

    id: str
    name: str
    kind: str
    subject: str
    lacking: str
    examples: int

    @classmethod
    def of(cls, claim: Claim, name: str, subject: Subject, profile: Profile) -> Entry:
        """The entry of a claim; probes the capabilities that it needs."""
        lacking = str(claim.lacks(subject) or "")
        examples = claim.examples(profile)
        return cls(claim.id, name, claim.kind.value, subject.name, lacking, examples)

    def line(self) -> str:
        """The entry as a line of the list."""
        if self.lacking:
            return f"  {self.id:<4} does not apply: {self.name} ({self.lacking})"
        examples = f"{self.examples} × " if self.kind == Kind.LAW.value else ""
        return f"  {self.id:<4} {self.kind:<7}  {examples}{self.name}"


class DryRun:
    """A plug-in of pytest: prints the list instead of results."""

    def __init__(self) -> None:
        self.entries: dict[str, list[Entry]] = defaultdict(list)
        self.refusals: list[str] = []

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Generator[None, object, None]:
        """Collect the entry that a test's report carries."""
        if report.when == "call" and (fields := dict(report.user_properties).get(LISTED)):
            entry = Entry(**fields)  # type: ignore[arg-type]
            self.entries[entry.subject].append(entry)
        if (why := getattr(report, "refused", None)) is not None and why not in self.refusals:
            self.refusals.append(why)
        yield

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Nothing was checked, so nothing passed."""
        if report.when == "call" and LISTED in dict(report.user_properties):
            return "listed", "", "LISTED"
        return None

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A model that cannot be loaded is bad input."""
        if self.refusals:
            session.exitstatus = pytest.ExitCode.USAGE_ERROR

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """The list of each model."""
        for why in self.refusals:
            terminalreporter.write_line(f"ERROR: {why}", red=True)
        for subject, entries in self.entries.items():
            for line in lines(subject, entries):
                terminalreporter.write_line(line)


def lines(subject: str, entries: Iterable[Entry]) -> Iterator[str]:
    """A model's claims in the order in which they would run, then those that do not apply."""
    ordered = sorted(entries, key=lambda entry: bool(entry.lacking))
    applying = [entry.kind for entry in ordered if not entry.lacking]
    counts = (f"{applying.count(kind.value)} {kind.value}s" for kind in Kind)
    yield f"{subject}: {' and '.join(counts)} apply"
    yield from (entry.line() for entry in ordered)
