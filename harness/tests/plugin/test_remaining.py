"""How long the rest of a run takes, by its claims' recorded costs."""

from __future__ import annotations

import pytest

from assay.harness.checking.claim import Claim
from assay.harness.checking.costs import cost_of
from assay.harness.checking.profiles import PROFILES
from assay.harness.plugin.remaining import ENOUGH, Remaining, Work, work
from assay.harness.results.verdicts import Kind, Result, Verdict


def ended(seconds: float, verdict: Verdict = Verdict.UPHELD) -> Result:
    return Result("C1", "says", Kind.LAW, "m", verdict, seconds=seconds)


def run(work: dict[str, Work], each: dict[str, float], at_once: int = 1) -> float | None:
    """The seconds left after claims that took ``each`` seconds, in so many processes."""
    remaining, clock = Remaining(work), 100.0
    for test, seconds in each.items():
        clock += seconds / at_once
        remaining.end(test, ended(seconds), clock)
    return remaining.seconds(clock)


@pytest.mark.parametrize("at_once", [1, 2])
def test_what_is_left_is_what_the_work_takes_here(at_once: int) -> None:
    costs = {f"t{i}": Work(100.0 * (i + 1), 0.5) for i in range(10)}
    took = {f"t{i}": 0.5 + 0.02 * 100 * (i + 1) for i in range(6)}
    left = sum(0.5 + 0.02 * 100 * (i + 1) for i in range(6, 10))
    assert run(costs, took, at_once) == pytest.approx(left / at_once, rel=0.15)


def test_a_machine_that_is_faster_than_recorded() -> None:
    costs = {f"t{i}": Work(0.0, 2.0) for i in range(10)}
    assert run(costs, {f"t{i}": 0.5 for i in range(5)}) == pytest.approx(2.5)


def test_claims_that_do_not_apply_are_expected_among_the_rest() -> None:
    remaining = Remaining({f"t{i}": Work(1.0, 0.0) for i in range(20)})
    for i in range(10):
        none = i % 2
        result = ended(0.0 if none else 1.0, Verdict.NOT_APPLICABLE if none else Verdict.UPHELD)
        remaining.end(f"t{i}", result, float(i))
    assert remaining.seconds(9.0) == pytest.approx(5.0)


def test_nothing_is_said_before_enough_has_run() -> None:
    costs = {f"t{i}": Work(1.0, 0.0) for i in range(10)}
    assert run(costs, {f"t{i}": 1.0 for i in range(ENOUGH - 1)}) is None
    assert run(costs, {f"t{i}": 0.0 for i in range(ENOUGH)}) is None
    assert run(costs, {f"t{i}": 1.0 for i in range(10)}) == 0.0


def test_work_is_that_of_all_examples() -> None:
    claim = Claim("C1", "says", Kind.LAW, "here", (), "control", enough=6)
    cost = cost_of("says", Kind.LAW)
    assert work(claim, "says", PROFILES["quick"]).beside == pytest.approx(6 * cost.other)
    assert work(claim, "says", PROFILES["glance"]).tokens == pytest.approx(
        4 * (cost.tokens + 2 * cost.reference_tokens)
    )
