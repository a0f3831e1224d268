"""A model whose passes stop ending: only the first probe waits for one as long as it may."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from transformers import LlamaForCausalLM

import assay
from assay.harness.checking.profiles import PROFILES
from assay.harness.models import roles
from assay.harness.models.capabilities import probe, registry
from assay.harness.models.clock import ForwardClock
from assay.harness.models.roles import Role
from assay.harness.models.subject import Subject
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.tiny_llama import llama
from assay.harness.tests.support.toys import Time


@pytest.fixture(autouse=True)
def passed(monkeypatch: pytest.MonkeyPatch) -> Time:
    """Time that only passes while a model sleeps, however slow the machine is."""
    passed = Time()
    monkeypatch.setattr("assay.harness.models.clock.perf_counter", passed)
    return passed


class Sleeping(LlamaForCausalLM):
    """Sleeps from its tenth pass on."""

    passes = 0
    passed: Time

    def forward(self, *arguments: Any, **named: Any) -> Any:
        self.passes += 1
        if self.passes > 10:
            self.passed.sleep(3600)
            time.sleep(3600)
        return super().forward(*arguments, **named)


def test_the_probes_after_one_that_hangs_have_little_time(
    monkeypatch: pytest.MonkeyPatch, passed: Time
) -> None:
    brakes = []

    def clock(brake: float, **options: Any) -> ForwardClock:
        brakes.append(brake)
        return ForwardClock(brake, **options)

    monkeypatch.setattr(registry, "ForwardClock", clock)
    monkeypatch.setattr(Sleeping, "passed", passed, raising=False)
    model = llama(Sleeping).eval().requires_grad_(False)
    reasons = probe(Subject("sleeping", model)).all(brake=1.0)
    hung = [why for why in reasons.values() if why and "in a pass that did not end" in why]
    assert len(hung) > 10
    assert set(brakes) == {1.0, 0.01}
    assert brakes.count(0.01) >= len(hung) - 1


class SleepsWithACache(LlamaForCausalLM):
    """Sleeps in every pass that continues a cache."""

    slept = 0
    passed: Time

    def forward(self, *arguments: Any, **named: Any) -> Any:
        cache = roles.value(named, Role.CACHE)
        if cache is not None and cache.get_seq_length():
            type(self).slept += 1
            self.passed.sleep(3600)
            time.sleep(3600)
        return super().forward(*arguments, **named)


def test_claims_that_need_what_hangs_wait_for_it_once(
    monkeypatch: pytest.MonkeyPatch, passed: Time
) -> None:
    monkeypatch.setattr(SleepsWithACache, "passed", passed, raising=False)
    monkeypatch.setitem(PROFILES, "glance", replace(PROFILES["glance"], brake=0.5))
    run = assay.check(llama(SleepsWithACache).eval(), claims=["C2"], profile="glance")
    undecided = [result for result in run.results if result.verdict is Verdict.INCONCLUSIVE]
    assert len(undecided) > 5
    assert all("in a pass that did not end" in result.reason for result in undecided)
    assert SleepsWithACache.slept <= 3
