"""The kill matrix: injected faults against claims, on one model of every family.

For each family the claims are first settled on the unmodified model: a claim that does not apply
there, or is refuted there already (a live defect, by the expectations), cannot detect a fault and
is left out.  Then each fault that applies is injected, and the claims are settled again, starting
with those that must catch it.  A fault is *killed* by every claim that is refuted with it and
upheld without, and by every capability of the model's type that it removes
(`harness.models.capabilities.recorded`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from assay.harness import faults
from assay.harness.checking.cases import Case
from assay.harness.checking.claim import Session
from assay.harness.checking.profiles import Profile
from assay.harness.faults import Fault
from assay.harness.faults.changes import changes
from assay.harness.models.capabilities.recorded import CAPABILITY, lacking
from assay.harness.models.subject import Subject
from assay.harness.results import expectations
from assay.harness.results.expectations import Expectations
from assay.harness.results.verdicts import Kind, Result, Verdict

MUST = Profile("must kill", examples=64, shrink=0, draws=64, brake=300.0)
"""For a claim that must catch a fault: the first examples show it, or the claim is weak.

64 examples miss a fault that shows in one of seven only once in 20 000 times.
"""

MAY = Profile("may kill", examples=3, shrink=0, brake=300.0)
"""For any other law, which may notice the fault as well."""

HEALTHY = Profile("healthy", examples=8, shrink=0, brake=300.0)
"""For every claim on an unmodified model."""


def session(profile: Profile) -> Session:
    """A session that draws the same examples in every run."""
    return Session(profile, derandomize=True)


Law = tuple[str, str]
"""A claim by its number and its words."""


@dataclass(frozen=True)
class Baseline:
    """A claim on an unmodified model: its number, its words, and its verdict."""

    id: str
    name: str
    kind: str
    verdict: str
    why: str = ""
    expected: bool = True


@dataclass(frozen=True)
class Row:
    """One fault in one family: why it does not apply there, or the claims that killed it.

    ``killers`` are (number, name) of claims, first those that must; ``undecided`` are claims that
    must and that were no longer decided, or no longer applied.
    """

    family: str
    fault: str
    lacks: str = ""
    caught_by: tuple[str, ...] = ()
    killers: tuple[Law, ...] = ()
    undecided: tuple[Law, ...] = ()
    tried: int = 0
    seconds: float = 0.0
    changes: bool = True
    """Whether the fault, if no claim noticed it, changes an output all the same."""

    @property
    def applies(self) -> bool:
        """Whether the fault can be injected in this family."""
        return not self.lacks

    @property
    def killed(self) -> bool:
        """Whether a claim that must catch the fault did."""
        return bool({id for id, _ in self.killers} & set(self.caught_by))

    @property
    def state(self) -> str:
        """``killed``, ``killed by others``, ``survived`` or ``does not apply``."""
        if not self.applies:
            return "does not apply"
        return "killed" if self.killed else "killed by others" if self.killers else "survived"


@dataclass(frozen=True)
class Family:
    """One family's part of the matrix: the model, its claims unmodified, a row for each fault."""

    name: str
    model: str
    healthy: tuple[Baseline, ...]
    rows: tuple[Row, ...]
    seconds: float = 0.0

    def catching(self, caught: Mapping[Law, str]) -> Family:
        """The family with further kills: the fault that each of these laws caught."""

        def extend(row: Row) -> Row:
            new = tuple(law for law, fault in caught.items() if fault == row.fault)
            return replace(row, killers=(*row.killers, *new)) if new else row

        return replace(self, rows=tuple(map(extend, self.rows)))

    def keeps(self, law: Law) -> bool:
        """Whether the unmodified model keeps the law."""
        return any((s.id, s.name) == law and s.verdict == Verdict.UPHELD for s in self.healthy)

    @property
    def broken(self) -> list[Baseline]:
        """Claims that the unmodified model should keep and does not."""
        return [claim for claim in self.healthy if not claim.expected]


@dataclass(frozen=True)
class Matrix:
    """All families; ``whole`` unless some of the faults or families were left out."""

    families: tuple[Family, ...]
    whole: bool = True
    seconds: float = 0.0
    processes: int = 1

    @property
    def rows(self) -> list[Row]:
        """Every row of every family."""
        return [row for family in self.families for row in family.rows]

    @property
    def survivors(self) -> list[Row]:
        """Faults that every claim which must catch them missed."""
        return [row for row in self.rows if row.applies and not row.killed]

    @property
    def changeless(self) -> list[str]:
        """Faults that change no output of any model that they apply to."""
        changing = {row.fault for row in self.rows if row.applies and row.changes}
        still = [row.fault for row in self.rows if row.applies and row.fault not in changing]
        return list(dict.fromkeys(still))

    @property
    def kills(self) -> Counter[Law]:
        """The number of faults that each claim killed, over all families."""
        return Counter(killer for row in self.rows for killer in row.killers)

    @property
    def uncaught(self) -> list[Law]:
        """Laws that an unmodified model keeps and that have caught nothing in any family."""
        upheld = {
            (claim.id, claim.name): None
            for family in self.families
            for claim in family.healthy
            if claim.kind == Kind.LAW and claim.verdict == Verdict.UPHELD
        }
        return [law for law in upheld if not self.kills[law]]

    @property
    def idle(self) -> list[Law]:
        """Laws that kill no fault, where all faults and families were tried."""
        return self.uncaught if self.whole else []

    @property
    def loose(self) -> list[Law]:
        """Findings that apply somewhere and whose control never had the opposite outcome.

        A finding is upheld or refuted only where its control did (`harness.checking.findings`).
        """
        if not self.whole:
            return []
        findings = [s for f in self.families for s in f.healthy if s.kind == Kind.FINDING]
        applied = [s for s in findings if s.verdict != Verdict.NOT_APPLICABLE]
        right = {(s.id, s.name) for s in applied if s.verdict != Verdict.INCONCLUSIVE}
        return list(dict.fromkeys((s.id, s.name) for s in applied if (s.id, s.name) not in right))

    @property
    def unplanted(self) -> list[str]:
        """Faults that apply to no family."""
        applied = {row.fault for row in self.rows if row.applies}
        return list(dict.fromkeys(r.fault for r in self.rows if r.fault not in applied))

    @property
    def holds(self) -> bool:
        """Whether every fault was killed, every law kills, and sound models keep every law."""
        healthy = not any(family.broken for family in self.families)
        failures = (self.survivors, self.idle, self.loose, self.unplanted if self.whole else [])
        return healthy and not any(failures)


class Extent(StrEnum):
    """How much of the matrix is filled in."""

    NAMED = "named"
    """Each fault with the claims that must catch it, until one does."""
    LAWS = "laws"
    """In addition each law that has caught nothing so far, until it catches a fault."""


@dataclass
class Trial:
    """How one family is tried: the claims, and the expectations of its model."""

    cases: Sequence[Case]
    expected: Mapping[str, Expectations] = field(default_factory=dict)
    extent: Extent = Extent.LAWS
    report: Callable[[str], None] = lambda _: None
    dtype: str = "float32"
    examples: int = MUST.examples
    """Those in which a law that must catch a fault has to."""

    def attempt(self, fault: Fault, healthy: Subject) -> Attempt:
        """The fault in the model, not yet looked for."""
        return Attempt(fault, healthy, replace(MUST, examples=self.examples))

    def family(self, name: str, healthy: Subject, planned: Iterable[Fault]) -> Family:
        """Settle the claims on the unmodified subject, then with every fault."""
        started = time.perf_counter()
        planned = list(planned)
        numbers = {id for fault in planned for id in fault.caught_by}
        named = self.extent is Extent.NAMED
        cases = [c for c in self.cases if not named or c.claim.id in numbers]
        self.report(f"{name}: sound model")
        results = [(case, case.settle(healthy, session(HEALTHY))) for case in cases]
        baseline = tuple(self._baseline(result) for _, result in results)
        usable = [case for case, result in results if result.verdict is Verdict.UPHELD]
        defective = (each for each in baseline if each.expected)
        hidden = {each.id for each in defective if each.verdict == Verdict.REFUTED}
        hidden -= {case.claim.id for case in usable}
        attempts = []
        for fault in planned:
            self.report(f"{name}: {fault.name}")
            attempts.append(self.attempt(fault, healthy))
            attempts[-1].try_named(usable, hidden)
        rows = tuple(attempt.row(name) for attempt in attempts)
        return Family(name, healthy.name, baseline, rows, time.perf_counter() - started)

    def _baseline(self, result: Result) -> Baseline:
        judgement = expectations.judge_result(self.expected, result, self.dtype)
        why = judgement.reason or result.reason
        return Baseline(
            *(result.id, result.name, result.kind.value, result.verdict.value, why),
            expected=not judgement.fails,
        )

    def catches(
        self, name: str, healthy: Subject, planned: Iterable[Fault], laws: Sequence[Law]
    ) -> dict[Law, str]:
        """For each of ``laws``, which the sound model keeps, a fault that it catches, if any."""
        attempts = (self.attempt(fault, healthy) for fault in planned)
        applying = [each for each in attempts if not each.lacks]
        kills = {}
        for case in self.cases:
            if (law := (case.claim.id, case.name)) not in laws:
                continue
            self.report(f"{name}: {case.name}")
            # First those that a claim of its number must catch.
            for attempt in sorted(applying, key=lambda a: case.claim.id not in a.fault.caught_by):
                if attempt.try_other(case):
                    kills[law] = attempt.fault.name
                    break
        return kills


class Attempt:
    """One fault in one sound model, with its kills so far."""

    def __init__(self, fault: Fault, healthy: Subject, must: Profile = MUST) -> None:
        self.fault, self.healthy, self.must = fault, healthy, must
        self.lacks = fault.lacks(healthy)
        self.killers: list[Law] = []
        self.undecided: list[Law] = []
        self.tried: set[Law] = set()
        self.seconds = 0.0

    def try_named(self, usable: Sequence[Case], hidden: Collection[str] = ()) -> None:
        """Try the claims that must catch the fault, until one does.

        Claims whose numbers are ``hidden`` break in the sound model, by a known defect of the
        library: where all that must catch the fault do, nothing can be said of it.
        """
        if not self.lacks and set(self.fault.caught_by) <= set(hidden):
            self.lacks = f"{', '.join(self.fault.caught_by)}: broken in the sound model already"
        if self.lacks:
            return
        self._probe()
        if not (self.killers and CAPABILITY in self.fault.caught_by):
            must = [case for case in usable if case.claim.id in self.fault.caught_by]
            self._settle(must, self.must)

    def _probe(self) -> None:
        """Add capabilities that the faulty model lacks: each ends a run with exit code 1."""
        with faults.injected(self.fault, self.healthy) as subject:
            self.killers += [(CAPABILITY, name) for name in lacking(subject)]

    def try_other(self, case: Case) -> bool:
        """Try a claim that has not been tried; whether it catches the fault."""
        if self.lacks or (case.claim.id, case.name) in self.tried:
            return False
        before = len(self.killers)
        self._settle([case], self.must if case.claim.id in self.fault.caught_by else MAY)
        return len(self.killers) > before

    def _settle(self, cases: Sequence[Case], profile: Profile) -> None:
        """Try claims until one catches the fault."""
        if not cases:
            return
        started = time.perf_counter()
        # One injection for all of them, as in a run of the suite on a faulty model.
        with faults.injected(self.fault, self.healthy) as subject:
            for case in cases:
                result = settle(case, subject, session(profile))
                law = (case.claim.id, case.name)
                self.tried.add(law)
                if result.verdict is Verdict.REFUTED:
                    self.killers.append(law)
                    break
                if result.verdict is not Verdict.UPHELD and profile is self.must:
                    self.undecided.append(law)
        self.seconds += time.perf_counter() - started

    def row(self, family: str) -> Row:
        """The outcome, as a row of the matrix."""
        return Row(
            family,
            self.fault.name,
            self.lacks,
            self.fault.caught_by,
            tuple(self.killers),
            tuple(self.undecided),
            len(self.tried),
            self.seconds,
            bool(self.lacks or self.killers) or changes(self.fault, self.healthy),
        )


def settle(case: Case, subject: Subject, session: Session) -> Result:
    """A claim's result on a faulty subject: an error outside of its examples refutes it."""
    try:
        return case.settle(subject, session)
    except Exception as error:  # such as a copy that cannot be loaded
        claim = case.claim
        return Result(
            *(claim.id, case.name, claim.kind, subject.name, Verdict.REFUTED),
            reason=f"{type(error).__name__}: {error}",
        )


def shared_out(
    idle: Sequence[Law], families: Sequence[Family], tried: Mapping[Law, set[str]]
) -> dict[str, list[Law]]:
    """Laws that have caught nothing, by a family that keeps each and has not been tried with it.

    Families get about as many each, so that they can be tried in parallel.
    """
    shares: dict[str, list[Law]] = {}
    for law in idle:
        able = [f.name for f in families if f.keeps(law) and f.name not in tried.get(law, ())]
        if able:
            shares.setdefault(min(able, key=lambda n: len(shares.get(n, ()))), []).append(law)
    return shares


def document(matrix: Matrix) -> dict[str, Any]:
    """The matrix as plain JSON."""
    return {
        "seconds": round(matrix.seconds, 1),
        "processes": matrix.processes,
        "whole": matrix.whole,
        "holds": matrix.holds,
        "families": [
            {
                "name": family.name,
                "model": family.model,
                "seconds": round(family.seconds, 1),
                "healthy": [vars(claim) for claim in family.healthy],
                "rows": [
                    {**vars(row), "state": row.state, "seconds": round(row.seconds, 2)}
                    for row in family.rows
                ],
            }
            for family in matrix.families
        ],
        "survivors": [[row.family, row.fault] for row in matrix.survivors],
        "laws that kill nothing": [list(law) for law in matrix.idle],
        "findings whose control comes out right nowhere": [list(one) for one in matrix.loose],
        "faults that apply nowhere": matrix.unplanted,
        "kills": [[id, name, count] for (id, name), count in sorted(matrix.kills.items())],
    }
