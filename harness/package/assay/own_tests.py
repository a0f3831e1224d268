"""Claims as a project's own tests: each is a parametrised test, on a model that a fixture makes.

    @pytest.fixture(scope="module")
    def model():
        return MyModel(MyConfig()).eval()

    @assay.parametrize("laws", profile="glance")
    def test_model_keeps_the_law(claim, model):
        claim.check(model)

See docs/own-tests.md.
"""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import pytest
from torch import nn
from transformers import PreTrainedTokenizerBase

from assay.harness.checking.cases import Case
from assay.harness.checking.catalogue import is_asked
from assay.harness.checking.claim import Session
from assay.harness.checking.profiles import PROFILES, Profile, check_profile
from assay.harness.models.loading import digests
from assay.harness.models.loading.wrapping import wrap
from assay.harness.models.subject import Subject
from assay.harness.results.errors import BadInput
from assay.harness.results.expectations import judge
from assay.harness.results.verdicts import Result, Verdict
from assay.run import choose, describe, settle, subject_of

REPLAY = "ASSAY_REPLAY"
"""The environment variable that holds the one example to try, as a failure prints it."""


@dataclass
class Prepared:
    """The model that the tests of one decorator checked last, with its probed capabilities and
    float64 copy.
    """

    subject: Subject | None = None
    key: tuple[object, ...] = ()

    def of(
        self,
        model: nn.Module | Callable[..., Any],
        tokenizer: PreTrainedTokenizerBase | None,
        attends: str | None,
        profile: Profile,
    ) -> Subject:
        """The subject of ``model``, rebuilt if the model or its weights changed."""
        name = type(model).__name__
        wrapped = wrap(name, model)
        key = (id(model), digests.digest(wrapped), id(tokenizer), attends)
        if self.subject is None or self.key != key:
            self.subject = subject_of(wrapped, tokenizer, attends, name, profile)
            self.key = key
        return self.subject


@dataclass
class Known:
    """An entry of ``xfail``: its ``reason``, and the ``pending`` tests of those that it names.

    Of a claim with variants some may hold and others not: the entry is stale once all hold.
    """

    reason: str
    pending: set[str]

    def failed(self) -> NoReturn:
        """End the test as one whose failure was expected."""
        self.pending.add("")  # no test's id: the entry is not stale
        pytest.xfail(self.reason)

    def held(self, id: str) -> None:
        """Fail the test if it is the last of those that the entry names, and all of them hold."""
        self.pending.discard(id)
        if not self.pending:
            pytest.fail(f"xfail: {self.reason}: holds now; remove the entry", pytrace=False)


@dataclass(frozen=True)
class OwnClaim:
    """One claim, as a test of `parametrize` receives it under the name ``claim``."""

    id: str
    """The test's id: the number, with name and variant where it has several: ``C3-static``."""
    case: Case = field(repr=False)
    session: Session = field(repr=False)
    prepared: Prepared = field(repr=False, compare=False)
    known: Known | None = field(default=None, repr=False, compare=False)

    @property
    def sentence(self) -> str:
        """The claim as a sentence."""
        return self.case.name

    def check(
        self,
        model: nn.Module | Callable[..., Any],
        tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        attends: str | None = None,
    ) -> Result:
        """Check the claim on ``model``, and return its result if it is upheld.

        A refuted claim fails the test, with its counterexample and a command that replays it; so
        does a law that was not decided.  A claim that does not apply skips it, naming the missing
        capability.  A finding that was not decided is an expected failure (``xfail``), and so is a
        law that a known defect of the library breaks.  The model is checked on its own device, in
        its own dtype, and left as it was; ``attends`` is ``causal`` or ``both`` where class and
        configuration do not say.  Raises `BadInput`.
        """
        __tracebackhide__ = True
        subject = self.prepared.of(model, tokenizer, attends, self.session.profile)
        session = replace(self.session, replay=os.environ.get(REPLAY))
        (result,) = settle(subject, [self.case], session).results
        if result.verdict is Verdict.NOT_APPLICABLE:
            if self.known is not None:
                self.known.pending.discard(self.id)
            pytest.skip(f"missing capability: {result.reason}")
        if result.expected is not None and result.expected.defect:
            pytest.xfail(f"a known defect of transformers: {result.expected.defect}")
        judgement = judge(result, None)
        if judgement.status == "inconclusive":
            pytest.xfail(f"inconclusive: {result.reason}")
        if judgement.fails and self.known is not None:
            self.known.failed()
        if judgement.fails:
            why = describe(result) if result.verdict is Verdict.REFUTED else judgement.message
            pytest.fail("\n".join([why, *_replay(result)]), pytrace=False)
        if self.known is not None:
            self.known.held(self.id)
        return result


def parametrize(
    claims: str | Sequence[str] = "laws",
    *,
    profile: str = "quick",
    seed: int = 0,
    xfail: Mapping[str, str] | None = None,
) -> pytest.MarkDecorator:
    """Make a test of each claim: pytest gives it as the argument ``claim`` (`OwnClaim`).

    ``claims`` are ``laws``, ``findings``, ``all``, or numbers such as ``["C1", "C2"]``
    (``ID:TEXT`` for the variants whose name holds the text).  ``profile`` and ``seed`` decide how
    many examples are tried, and which.  ``xfail`` has a reason for each claim that is known to
    fail, by its number, ``ID:TEXT``, or the id of a test.  Of the tests that an entry names those
    that fail are expected failures; where all of them pass, the last one fails.

    Raises `BadInput` for arguments that cannot be used.

    >>> [param.id for param in parametrize(["C1", "C3"]).args[1]]
    ['C3-default', 'C3-dynamic', 'C3-sliding', 'C3-static', 'C1']
    """
    check_profile(profile)
    cases, prepared = choose(claims, PROFILES[profile].slow), Prepared()
    session = Session(PROFILES[profile], seed)
    named = {id: case for id, case in _named().items() if case in cases}
    known = _known(dict(xfail or {}), named)
    params = [
        pytest.param(OwnClaim(id, case, session, prepared, known.get(id)), id=id)
        for id, case in named.items()
    ]
    return pytest.mark.parametrize("claim", params)


def _known(xfail: Mapping[str, str], named: Mapping[str, Case]) -> dict[str, Known]:
    """The entry of ``xfail`` for each test that one names, by its id; the narrowest counts.

    Raises `BadInput` for an entry that names none of the tests ``named``.
    """
    keys = dict[str, str]()
    for key in sorted(xfail, key=lambda each: (each in named, ":" in each)):
        asked = (is_asked(key, case.claim.id, case.name) for case in named.values())
        tests = [id for id, yes in zip(named, asked, strict=True) if yes or id == key]
        if not tests:
            raise BadInput(f"xfail: {key}: no such claim among those asked for")
        keys |= dict.fromkeys(tests, key)
    pending = {key: {id for id, other in keys.items() if other == key} for key in xfail}
    entries = {key: Known(reason, pending[key]) for key, reason in xfail.items()}
    return {id: entries[key] for id, key in keys.items()}


def _named() -> dict[str, Case]:
    """Every claim by the id of its test: the number, where a number has several sentences the name
    of Assay's own test, and the variant.
    """
    cases = choose("all", slow=True)
    sentences = Counter(number for number, _ in {(c.claim.id, c.claim.says) for c in cases})
    named = {}
    for case in cases:
        several = sentences[case.claim.id] > 1
        name = case.test.__name__.removeprefix("test_") if several else ""
        variant = case.name.removeprefix(case.claim.says).strip(" []").replace(" ", "_")
        named["-".join(filter(None, (case.claim.id, name, variant)))] = case
    assert len(named) == len(cases), "two claims have one id"
    return named


def _replay(result: Result) -> list[str]:
    """The command that runs a failing example again, if it has one."""
    blob = result.counterexample and result.counterexample.blob
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    return [f"replay: {REPLAY}={blob} pytest {shlex.quote(test)}"] if blob and test else []
