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
from assay.harness.tests.support.plain_models import PlainGPT
from assay.run import choose


def plain() -> Subject:
    model = wrap("plain", PlainGPT()).eval().requires_grad_(False)
    return Subject("plain", model, settings=SubjectSettings("causal"))


LAWS = {case.claim.id for case in choose("laws")}
APPLY = [
    fault
    for fault in faults.FAULTS.values()
    if LAWS & set(fault.caught_by) and not fault.lacks(plain())
]


def test_many_apply() -> None:
    assert len(APPLY) >= 15


@pytest.mark.parametrize("fault", APPLY, ids=lambda fault: fault.name)
def test_each_that_applies_is_caught(fault: faults.Fault) -> None:
    cases = [case for case in choose(sorted(LAWS & set(fault.caught_by)))]
    with faults.injected(fault, plain()) as damaged:
        verdicts = {
            case.settle(damaged, Session(PROFILES["quick"], 0)).verdict
            for case in cases
            if case.claim.kind is Kind.LAW
        }
    assert Verdict.REFUTED in verdicts
