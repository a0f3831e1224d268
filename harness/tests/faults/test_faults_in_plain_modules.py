"""Faults injected into a plain module are caught, whatever its parts are called."""

from __future__ import annotations

import pytest

from assay.harness import faults
from assay.harness.checking.claim import Session
from assay.harness.checking.profiles import PROFILES
from assay.harness.models.loading.wrapping import wrap
from assay.harness.models.subject import Subject
from assay.harness.models.subject.settings import SubjectSettings
from assay.harness.results.verdicts import Kind, Verdict
from assay.harness.tests.support.nightly import nightly
from assay.harness.tests.support.plain_models import PlainGPT
from assay.run import choose


def plain() -> Subject:
    model = wrap("plain", PlainGPT()).eval().requires_grad_(False)
    return Subject("plain", model, settings=SubjectSettings("causal"))


LAWS = {case.claim.id for case in choose("laws")}
APPLY = [
    name
    for name, fault in faults.FAULTS.items()
    if LAWS & set(fault.caught_by) and not fault.lacks(plain())
]


def test_many_apply() -> None:
    assert len(APPLY) >= 15


@pytest.mark.parametrize("name", [nightly(n) if i % 4 else n for i, n in enumerate(APPLY)])
def test_each_that_applies_is_caught(name: str) -> None:
    fault = faults.FAULTS[name]
    cases = choose(sorted(LAWS & set(fault.caught_by)))
    with faults.injected(fault, plain()) as damaged:
        assert any(
            case.settle(damaged, Session(PROFILES["quick"], 0)).verdict is Verdict.REFUTED
            for case in cases
            if case.claim.kind is Kind.LAW
        )
