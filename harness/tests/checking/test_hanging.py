"""A model whose code never comes back: the claim ends without a verdict, and the next one runs."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from assay.harness.checking.bounds import Bound
from assay.harness.checking.findings import finding
from assay.harness.checking.laws import law
from assay.harness.checking.profiles import Profile
from assay.harness.checking.statistics import median
from assay.harness.models.clock import HUNG, patience
from assay.harness.models.runs import describe_subject
from assay.harness.results.verdicts import Result, Verdict
from assay.harness.tests.support.toys import Time, budget, fresh, prompt, toy, verdict

SHORT = 0.1
"""A brake in seconds; the claims that it ends would go on for ever."""


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """By which a claim is late only once its model hangs, however slow the machine is."""
    clock = Time()
    monkeypatch.setattr("assay.harness.models.clock.perf_counter", clock)
    return clock


def asleep() -> None:
    time.sleep(1e6)


def looping() -> None:
    while True:
        pass


def waiting() -> None:
    threading.Event().wait()


def swallowing() -> None:
    """Takes the first strike for an error of its own and goes on."""
    try:
        asleep()
    except BaseException:
        asleep()


def hanging(how, clock, from_pass=1):
    """A model whose first block hangs from one pass on."""
    subject, passes = fresh("gpt2"), [0]

    def hook(*_):
        passes[0] += 1
        if passes[0] >= from_pass:
            clock.sleep(1000.0)
            how()

    subject.blocks[0].register_forward_pre_hook(hook)
    return subject


def a_law(body=None, needs=()):
    def usual(subject, draw, check):
        subject.rows(prompt(subject, 3))
        check.judge(0.0, 1.0)
        check.judge_control(2.0, 1.0)

    return law("X1", "says", needs=needs, source="here", control="the control")(body or usual)


def a_finding(subject) -> Result:
    def body(subject, draws, sample):
        subject.rows(prompt(subject, 3))
        sample.add(effect=10.0 + draws.normal(), control=draws.normal() - 10.0)

    bound = Bound(median, above=0.0)
    declared = finding("X1", "says", source="here", bound=bound, control="c")(body)
    return verdict(declared, subject, Profile("test", 0, 0, draws=64, brake=SHORT))


def unset() -> bool:
    """Whether nothing is left of the timer."""
    return (
        signal.getitimer(signal.ITIMER_REAL)[0] == 0
        and signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
    )


@pytest.mark.parametrize("how", [asleep, looping, waiting, swallowing])
@pytest.mark.parametrize(
    "settle", [lambda s: verdict(a_law(), s, budget(4, brake=SHORT)), a_finding]
)
def test_a_pass_that_does_not_end_ends_its_claim_without_a_verdict(how, settle, clock):
    result = settle(hanging(how, clock))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "s in a pass that did not end at 0 of" in result.reason
    assert unset()


def test_a_law_that_was_broken_before_a_pass_hung_stays_refuted(monkeypatch, clock):
    def body(subject, draw, check):
        subject.rows(prompt(subject, 3))
        check.judge(2.0, 1.0)

    monkeypatch.setattr("assay.harness.checking.laws.repeats", lambda subject: True)
    result = verdict(a_law(body), hanging(asleep, clock, from_pass=2), budget(4, brake=SHORT))
    assert result.verdict is Verdict.REFUTED
    assert result.counterexample is not None


def test_what_hangs_outside_of_a_pass_is_ended_too(clock):
    def body(draw, check):
        clock.sleep(1000.0)
        asleep()

    law_with_a_probe = a_law(needs=["position-ids"])
    probed = verdict(law_with_a_probe, hanging(looping, clock), budget(4, brake=SHORT))
    outside = verdict(a_law(body), toy("gpt2"), budget(4, brake=SHORT))
    for result, where in ((probed, " in a pass that did not end"), (outside, "")):
        assert result.verdict is Verdict.INCONCLUSIVE
        assert result.reason.startswith(f"stopped after 1e+03 s{where} at 0 of 4 examples")
    assert unset()


def test_what_is_slow_outside_of_a_pass_has_more_time(clock):
    def body(draw, check):
        clock.sleep(3 * SHORT)
        time.sleep(3 * SHORT)
        check.judge(0.0, 1.0)
        check.judge_control(2.0, 1.0)

    result = verdict(a_law(body), toy("gpt2"), budget(1, brake=SHORT))
    assert "at 1 of 1 examples" in result.reason  # by the brake, once the example had ended


def test_a_claim_that_ends_in_time_leaves_no_trace():
    assert verdict(a_law(), fresh("gpt2"), budget(4, brake=60.0)).verdict is Verdict.UPHELD
    assert unset()


def test_a_probe_that_hangs_when_a_model_is_described_is_not_asked_again(clock):
    subject = hanging(asleep, clock)
    described = describe_subject(subject, brake=SHORT)
    assert described.missing["position-ids"].startswith("not found out: stopped after 1e+03 s")
    assert "causal" in described.capabilities  # for which nothing is run
    result = verdict(a_law(needs=["position-ids"]), subject, budget(4, brake=SHORT))
    assert (result.verdict, result.examples) == (Verdict.INCONCLUSIVE, 0)
    assert result.reason.startswith("stopped after")
    assert unset()


def test_claims_after_a_pass_that_did_not_end_have_less_time(clock):
    def body(subject, draw, check):
        subject.rows(prompt(subject, 3))
        check.judge(0.0, 1.0)

    subject = hanging(asleep, clock)
    assert patience(subject, SHORT) == SHORT
    result = verdict(a_law(body), subject, budget(4, brake=SHORT))
    assert "in a pass that did not end" in result.reason
    assert patience(subject, SHORT) == SHORT / HUNG
    again = verdict(a_law(body), subject, budget(4, brake=SHORT))
    assert again.verdict is Verdict.INCONCLUSIVE
