"""What a descent's steps count as in a claim's time and work."""

from __future__ import annotations

from itertools import count

import pytest
import torch

from assay.harness.inversion import start
from assay.harness.inversion.descent import descend
from assay.harness.inversion.rule import Rule
from assay.harness.inversion.target import Target
from assay.harness.models.subject import Subject
from assay.harness.models.subject.clock import Braked, ForwardClock, stepping
from assay.harness.tests.support.toys import fresh, toy

STEPS, ROWS, TOKENS = 4, 2, 5


@pytest.fixture(autouse=True)
def ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that is a second later whenever it is read."""
    monkeypatch.setattr("assay.harness.models.subject.clock.perf_counter", count().__next__)


def watched(subject: Subject, inverted: Subject, depth: int, runner: str) -> ForwardClock:
    """The clock of a claim on ``subject`` that descends on ``inverted``."""
    ids = subject.content(torch.arange(ROWS * TOKENS).reshape(ROWS, TOKENS))
    normal = torch.randn(ROWS, TOKENS, inverted.hidden, generator=torch.Generator().manual_seed(0))
    target, rates = Target(depth), torch.full((ROWS,), 1e-4)
    wanted, first = target.output(inverted, ids).detach(), start.scaled(inverted, normal)

    def descended() -> None:
        descend(inverted, target, wanted, first, rates, Rule(steps=STEPS), runner=runner)

    descended()  # finds out how the model is called
    clock = ForwardClock()
    with clock.watching(subject):
        descended()
    return clock


@pytest.mark.parametrize("runner", ["eager", "replay"])
def test_a_step_is_a_pass_forwards_and_one_backwards(runner: str) -> None:
    subject = toy("gpt2")
    assert subject.layers == 2
    for inverted in (subject, fresh("gpt2")):
        clock = watched(subject, inverted, 2, runner)
        steps = 2 * STEPS
        assert clock.work["own"] == [steps, steps * ROWS * TOKENS]
        assert clock.elsewhere == 0


def test_a_token_through_half_of_the_blocks_counts_half() -> None:
    subject = toy("gpt2")
    clock = watched(subject, subject, 1, "eager")
    assert clock.work["own"] == [2 * STEPS, STEPS * ROWS * TOKENS]


def test_steps_on_a_model_of_another_size_are_time_and_no_work() -> None:
    clock = watched(toy("gpt2"), toy("llama"), 2, "eager")
    assert clock.work["own"] == [0, 0]
    assert clock.elsewhere == clock.seconds != 0


def test_a_claim_that_has_taken_too_long_ends_between_steps_on_any_model() -> None:
    subject, other = toy("gpt2"), toy("llama")
    clock = ForwardClock(brake=0.0)
    with clock.watching(subject), pytest.raises(Braked), stepping(other.model, 1, 1):
        pytest.fail("a step began")
