"""Expectations: the verdicts that a model should get, written by a person, with reasons.

A model may be a pattern, such as ``tiny:*``: its entries hold for every model that fits and whose
own file says nothing of the claim, where the claim applies and is decided.

A file also applies to its model built from other seeds (that of ``tiny:mamba2`` to
``tiny:mamba2:7``) that have no file of their own.  There it allows a verdict and does not demand
it: the effect of a defect depends on the weights.

A folder, or a model of the hub, has the defects that the library has with every model of its type.
What the file of ``tiny:t5`` expects to be broken is as expected of every T5, and named a known
defect.  Nothing is demanded there.

Without an entry a claim is expected to be upheld or not to apply.  One that cannot be checked
here, because of a package, the device or an option, is as expected with any entry.  In another
dtype than the file's, and on a device that is no processor, its entries allow a verdict
and do not demand it: rounding may hide a failure there, and other kernels may not have it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from packaging.specifiers import SpecifierSet

from assay.harness.results.records import Recorded
from assay.harness.results.specs import SIGN, ModelSpec
from assay.harness.results.verdicts import Foreseen, Kind, Result, Verdict

Key = tuple[str, str | None]
"""A claim's number and its name; None stands for all tests of the number."""

PROCESSOR = "cpu"
"""The kind of device whose verdicts are written down."""


def named(where: str, key: Key) -> str:
    """The location of an entry, and the name of the claim in it, if it has one."""
    return where if key[1] is None else f"{where}: {key[1]}"


RECORD, EARLIER, LATER = "record", "earlier version", "later version"
"""Values of `Recorded.basis`."""


@dataclass(frozen=True)
class Expected:
    """The verdict that an entry expects, why, and the entry's location (for messages).

    ``sometimes``: a small budget may miss it, as the search for a counterexample of a law may end
    before it finds one, and few draws may leave a finding inconclusive.  ``versions`` are the
    versions of packages that it is about, by name; ``device`` is the kind of device, where it is
    about one only.
    """

    verdict: Verdict
    reason: str
    where: str
    sometimes: bool = False
    versions: tuple[tuple[str, str], ...] = ()
    device: str | None = None

    def applies(self, device: str) -> bool:
        """Whether it is about the installed versions, and about this kind of device."""
        here = self.device in (None, device)
        return here and all(_installed(name) in SpecifierSet(s) for name, s in self.versions)

    @property
    def defect(self) -> str:
        """The name of the library's defect that is the reason, or nothing."""
        return next(iter(_SCRIPT.findall(self.reason)), "")


_SCRIPT = re.compile(r"docs/defects/(\w+)\.py")


@cache
def _installed(package: str) -> str:
    """The version of a package, without a local label such as ``+cpu``; 0 where there is none."""
    try:
        return version(package).partition("+")[0]
    except PackageNotFoundError:
        return "0"


@dataclass(frozen=True)
class Expectations:
    """The expectations of one model: the file, and its entries by claim.

    ``lacks``: capabilities of its type that the model is known to lack, with the reason.
    """

    model: str
    path: Path
    dtype: str
    entries: dict[Key, Expected]
    lacks: dict[str, str] = field(default_factory=dict)

    def expected(self, claim_id: str, name: str) -> Expected | None:
        """The entry for this very test, else the one for all tests of this number, else None."""
        return self.entries.get((claim_id, name)) or self.entries.get((claim_id, None))

    def entry(self, result: Result, dtype: str, device: str = PROCESSOR) -> Expected | None:
        """The entry that applies to a result of a run in ``dtype`` on ``device``, if any."""
        expected = self.expected(result.id, result.name)
        if expected is None or not expected.applies(device):
            return None
        lenient = {Verdict.NOT_APPLICABLE, Verdict.INCONCLUSIVE} if self.is_pattern else set()
        if self.is_of_another_seed(result.subject):
            lenient = {*Verdict} - {Verdict.REFUTED}
        if dtype != self.dtype or device != (expected.device or PROCESSOR):
            lenient |= {Verdict.UPHELD, Verdict.NOT_APPLICABLE}
        return None if result.verdict in lenient else expected

    def defect(self, result: Result, device: str) -> Expected | None:
        """The entry by which a model of this one's type breaks a law, as every such model does."""
        expected = self.expected(result.id, result.name)
        if expected is None or result.kind is not Kind.LAW or not expected.applies(device):
            return None
        return expected if result.verdict is expected.verdict is Verdict.REFUTED else None

    @property
    def is_pattern(self) -> bool:
        """Whether this is about every model that fits."""
        return "*" in self.model

    def fits(self, subject: str) -> bool:
        """Whether ``subject`` is the model, the same from another seed, or fits the pattern."""
        if self.is_pattern:
            return fnmatchcase(subject, self.model)
        return subject == self.model or self.is_of_another_seed(subject)

    def is_of_another_seed(self, subject: str) -> bool:
        """Whether ``subject`` is the model's name followed by a seed."""
        if not subject.startswith(self.model.partition(SIGN)[0]):
            return False  # to parse a name takes longer, and every file asks for every claim
        spec = ModelSpec.recorded(subject)
        return spec.seed is not None and str(replace(spec, seed=None)) == self.model

    def unmatched(self, results: Iterable[Result]) -> list[str]:
        """The locations of entries without a result: stale after a whole run."""
        own_results = [result for result in results if self.fits(result.subject)]
        keys = {(r.id, r.name) for r in own_results} | {(r.id, None) for r in own_results}
        stale = {key: entry for key, entry in self.entries.items() if key not in keys}
        return [named(entry.where, key) for key, entry in stale.items()]


@dataclass(frozen=True)
class Judgement:
    """A result compared with its expectation: ``as expected``, ``unexpected``, ``inconclusive``.

    Only the first is a pass and only the second fails a run.  The third is for a finding that
    needs more samples where no entry says that it is decided, for a law in 16 bits whose leaks
    rounding hides, and for a law whose prompts were too short.  A claim that an error ended fails
    a run.  ``compared`` is false where a claim is refuted and no file is about its model.
    """

    status: str
    message: str
    foreseen: Foreseen | None = None
    compared: bool = True

    @property
    def reason(self) -> str:
        """Why the result is as expected; or empty."""
        return "" if self.foreseen is None else self.foreseen.reason

    @property
    def ok(self) -> bool:
        """Whether this is a pass."""
        return self.status == "as expected"

    @property
    def fails(self) -> bool:
        """Whether this fails the run."""
        return self.status == "unexpected"


def judge_result(
    every: Mapping[str, Expectations],
    result: Result,
    dtype: str,
    device: str = PROCESSOR,
    form: str = "",
) -> Judgement:
    """A result of a run in ``dtype`` against its model's own entry, else that of a pattern, else
    the library's defects with models of its type.

    ``device`` is the kind of device that the model was on, such as ``cuda``; ``form`` is the tiny
    model of its type, such as ``tiny:t5``, for a model that is none itself.  Nothing is expected
    of a model with an injected fault.
    """
    if ModelSpec.recorded(result.subject).fault is not None:
        return judge(result, None)
    fitting = [each for each in every.values() if each.fits(result.subject)]
    if result.subject in every:
        fitting = [each for each in fitting if not each.is_of_another_seed(result.subject)]
    fitting.sort(key=lambda each: (each.is_pattern, each.model))
    entries = [each.entry(result, dtype, device) for each in fitting]
    if form and result.subject not in every:
        of_type = sorted((e for e in every.values() if e.fits(form)), key=lambda e: e.is_pattern)
        entries += [each.defect(result, device) for each in of_type]
    expected = next((entry for entry in entries if entry is not None), None)
    return judge(result, expected, result.subject in every)


def judge(result: Result, expected: Expected | None, has_file: bool = False) -> Judgement:
    """Compare a result with its expectation, strictly both ways.

    ``has_file``: a file of expectations is about this model.
    """
    verdict, what = (
        result.verdict,
        f"{result.id} ({result.name}) on {result.subject} is {result.verdict}",
    )
    reason = f": {result.reason}" if result.reason else ""
    if result.rounding_hides or result.left_out or result.not_reached:
        return Judgement("inconclusive", f"{what}{reason}")
    if result.unavailable:  # no expectation knows what is installed
        return Judgement("as expected", f"{what}{reason}")
    if verdict is Verdict.INCONCLUSIVE and result.kind is Kind.LAW:
        return Judgement("unexpected", f"{what}, and a law must be decided{reason}")
    if result.ended_in_error and (expected is None or expected.verdict is not verdict):
        return Judgement("unexpected", f"{what}{reason}")
    if expected is None:
        if verdict is Verdict.INCONCLUSIVE:
            return Judgement("inconclusive", f"{what}{reason}")
        if verdict is Verdict.REFUTED:
            unforeseen = ", and no expectation says so" if has_file else ""
            return Judgement("unexpected", f"{what}{unforeseen}", compared=has_file)
        return Judgement("as expected", f"{what}{reason}")
    entry = f"{expected.where} expects {expected.verdict}"
    if verdict is expected.verdict is Verdict.INCONCLUSIVE:
        return Judgement("inconclusive", f"{what}, as {expected.where} expects{reason}")
    if verdict is expected.verdict:
        why = f": {expected.reason}" if expected.reason else ""
        message = f"{what}, as {expected.where} expects{why}"
        return Judgement("as expected", message, Foreseen(expected.reason, expected.defect))
    if expected.sometimes and verdict is Verdict.UPHELD and result.kind is Kind.LAW:
        return Judgement("as expected", f"{what} as far as was looked; {entry} sometimes")
    if expected.sometimes and verdict is Verdict.INCONCLUSIVE:
        return Judgement("inconclusive", f"{what}; {entry} where enough is drawn{reason}")
    return Judgement("unexpected", f"{what}, but {entry}, which no longer matches{reason}")


@dataclass(frozen=True)
class Lacks:
    """The expected capabilities that a model lacks, in lines.

    ``every`` are the expectations by model; ``recorded`` is that part of the description of
    ``subject`` (`models.loading.runs.describe_subject`); ``results`` are those of its claims.
    """

    every: Mapping[str, Expectations]
    subject: str
    recorded: Recorded
    dtype: str
    results: Sequence[Result] = ()

    @property
    def unexpected(self) -> list[str]:
        """A line for each reason why capabilities are lacking, and for each that is there again.

        A capability may be lacking only where an expectation says so, and must be lacking where
        the model's own file says so.  Not so those that a later version of transformers has.
        """
        if self.recorded.type is None or self.recorded.basis == LATER:
            return []
        own = [e for e in self._fitting if e.model == self.subject and e.dtype == self.dtype]
        return self._lines() + [
            f"{self.subject} has `{name}`, and {each.path} expects that it lacks it: remove that "
            "entry"
            for each in own
            for name in each.lacks
            if name not in self.recorded.lacks
        ]

    @property
    def of_earlier_versions(self) -> list[str]:
        """A line for each reason why an older transformers lacks what a later version has."""
        return self._lines() if self.recorded.basis == LATER else []

    @property
    def _fitting(self) -> list[Expectations]:
        sound = ModelSpec.recorded(self.subject).fault is None
        return [each for each in self.every.values() if sound and each.fits(self.subject)]

    def _lines(self) -> list[str]:
        allowed = {name for each in self._fitting for name in each.lacks}
        by_reason: dict[str, list[str]] = {}
        for name, why in self.recorded.lacks.items():
            if name not in allowed:
                by_reason.setdefault(why, []).append(name)
        return [self._line(names, why) for why, names in by_reason.items()]

    def _line(self, names: list[str], why: str) -> str:
        first, *others = (f"`{name}`" for name in names)
        what = f"{first} (with it {', '.join(others)})" if others else first
        whose = {
            RECORD: f"{self.recorded.type} has in transformers {self.recorded.version}",
            EARLIER: f"it had in transformers {self.recorded.version}",
            LATER: f"it has in transformers {self.recorded.version}",
        }.get(self.recorded.basis, f"a class such as {self.recorded.type} is expected to have")
        count = sum(_is_about(result, self.subject, names) for result in self.results)
        laws = f"; {count} {'claims were' if count != 1 else 'claim was'} not examined"
        return f"{self.subject} lacks {what}, which {whose}: {why}{laws if count else ''}"


def _is_about(result: Result, subject: str, names: Sequence[str]) -> bool:
    """Whether a claim does not apply to ``subject`` for want of one of these capabilities."""
    absent = result.verdict is Verdict.NOT_APPLICABLE and result.subject == subject
    return absent and result.capability in names
