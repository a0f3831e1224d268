"""Rows of a descent that end early or are watched, and what its steps count as."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import count

import pytest
import torch
from torch import Tensor

from assay.harness.inversion import Descent, Rule, Target, descend, start
from assay.harness.inversion.batch import Batch
from assay.harness.models.subject import Subject
from assay.harness.models.subject.clock import Braked, ForwardClock, stepping
from assay.harness.tests.support.descents import ROWS, RULE, same, some, task
from assay.harness.tests.support.toys import fresh, toy


def thresholds_for(whole: Descent, steps: list[int]) -> Tensor:
    """Thresholds that rows first fall below at ``steps``; those beyond the end never do."""
    least = whole.losses.cummin(1).values
    made = [
        least[row, step - 1] * 0.9999999 if step <= RULE.steps else 0.0
        for row, step in enumerate(steps)
    ]
    return torch.tensor(made, dtype=torch.float64)


# Close.


@pytest.mark.parametrize("until_close", [False, True])
def test_a_row_is_close_at_the_first_step_below_its_threshold(until_close):
    inputs = task()
    whole = descend(*inputs, RULE)
    thresholds = thresholds_for(whole, [1, 4, 8, 15, 99])
    made = descend(*inputs, RULE, thresholds=thresholds, until_close=until_close)
    for losses, threshold, close in zip(whole.losses, thresholds, made.close, strict=True):
        below = (losses < threshold).nonzero()[:, 0].tolist()
        assert float(close) == (below[0] if below else math.inf)
    assert made.close.isfinite().tolist() == [True] * 4 + [False]
    assert len(set(made.close.tolist())) == ROWS


@pytest.mark.parametrize("steps", [[3, 99, 99, 99, 99], [2, 3, 12, 13, 18]])
@pytest.mark.parametrize("optimiser", ["descent", "adam"])
def test_a_row_ends_at_the_next_look_whoever_goes_on_beside_it(optimiser, steps):
    """The first row ends among too many others for it to be worth while to drop it."""
    rule, inputs = replace(RULE, optimiser=optimiser), task()
    if optimiser == "adam":
        inputs = (*inputs[:4], torch.linspace(0.05, 0.1, ROWS, dtype=torch.float64))
    whole = descend(*inputs, rule, watch=range(0, 21, 5))
    thresholds = thresholds_for(whole, steps)
    made = descend(*inputs, rule, thresholds=thresholds, until_close=True)
    for row in range(ROWS):
        alone = descend(*some(inputs, [row]), rule, thresholds=thresholds[[row]], until_close=True)
        assert same(made.embeddings[[row]], alone.embeddings)
        assert same(made.losses[[row]], alone.losses)
        assert same(made.close[[row]], alone.close)
        close = made.close[row].clamp_max(19).int().item()
        look = 5 * (close // 5 + 1)
        assert same(made.embeddings[row], whole.watched[look][row])
        assert same(made.losses[row, :look], whole.losses[row, :look])
        assert bool(made.losses[row, look + (look == 20) :].isnan().all())
        assert made.final[row] == made.losses[row, look - (look < 20)]


def test_rows_that_ended_go_through_the_model_no_more(monkeypatch):
    inputs, went = task(), []
    thresholds = thresholds_for(descend(*inputs, RULE), [1, 2, 3, 12, 99])
    advance = Batch._advance

    def counted(batch):
        went.append(len(batch.x))
        advance(batch)

    monkeypatch.setattr(Batch, "_advance", counted)
    descend(*inputs, RULE, thresholds=thresholds, until_close=True)
    assert went == [5] * 5 + [2] * 10 + [1] * 5
    went.clear()
    descend(*inputs, RULE, thresholds=thresholds)
    assert went == [5] * 20


def test_rows_that_are_over_end_though_they_are_not_close():
    inputs, calls = task(), []
    whole = descend(*inputs, RULE)
    thresholds = thresholds_for(whole, [7, 99, 99, 99, 99])

    def over(steps, close, lowered):
        calls.append((steps, close.tolist()))
        return close.isfinite() | (torch.arange(ROWS) == 3) & (steps >= 10)

    made = descend(*inputs, RULE, thresholds=thresholds, until_close=True, over=over)
    assert [steps for steps, _ in calls] == [5, 10, 15]
    assert [close[0] for _, close in calls] == [math.inf, 7.0, 7.0]
    assert made.close.tolist() == [7.0] + [math.inf] * 4
    for row, end in enumerate([10, 21, 21, 10, 21]):
        assert same(made.losses[row, :end], whole.losses[row, :end])
        assert bool(made.losses[row, end:].isnan().all())


# Watched.


def test_what_is_watched_after_a_step_is_where_so_many_steps_end():
    inputs = task()
    made = descend(*inputs, RULE, watch=[0, 3, 5, 12, 20])
    assert list(made.watched) == [0, 3, 5, 12, 20]
    assert torch.equal(made.watched[0], inputs[3])
    assert torch.equal(made.watched[20], made.embeddings)
    for step in (3, 5, 12):
        shorter = descend(*inputs, Rule(step, schedule="constant")).embeddings
        assert same(made.watched[step], shorter)
        assert not any(same(made.watched[k], shorter) for k in made.watched if k != step)


# What steps count as in a claim's time and work.


STEPS, PROMPTS, TOKENS = 4, 2, 5


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that is a second later whenever it is read."""
    monkeypatch.setattr("assay.harness.models.subject.clock.perf_counter", count().__next__)


def watched(subject: Subject, inverted: Subject, depth: int, runner: str) -> ForwardClock:
    """The clock of a claim on ``subject`` that descends on ``inverted``."""
    ids = subject.content(torch.arange(PROMPTS * TOKENS).reshape(PROMPTS, TOKENS))
    normal = torch.randn(
        PROMPTS, TOKENS, inverted.hidden, generator=torch.Generator().manual_seed(0)
    )
    target, rates = Target(depth), torch.full((PROMPTS,), 1e-4)
    wanted, first = target.output(inverted, ids).detach(), start.scaled(inverted, normal)

    def descended() -> None:
        descend(inverted, target, wanted, first, rates, Rule(steps=STEPS), runner=runner)

    descended()  # finds out how the model is called
    clock = ForwardClock()
    with clock.watching(subject):
        descended()
    return clock


@pytest.mark.usefixtures("ticks")
@pytest.mark.parametrize("runner", ["eager", "replay"])
def test_a_step_is_a_pass_forwards_and_one_backwards(runner: str) -> None:
    subject = toy("gpt2")
    assert subject.layers == 2
    for inverted in (subject, fresh("gpt2")):
        clock = watched(subject, inverted, 2, runner)
        steps = 2 * STEPS
        assert clock.work["own"] == [steps, steps * PROMPTS * TOKENS]
        assert clock.elsewhere == 0


@pytest.mark.usefixtures("ticks")
def test_a_token_through_half_of_the_blocks_counts_half() -> None:
    subject = toy("gpt2")
    clock = watched(subject, subject, 1, "eager")
    assert clock.work["own"] == [2 * STEPS, STEPS * PROMPTS * TOKENS]


@pytest.mark.usefixtures("ticks")
def test_steps_on_a_model_of_another_size_are_time_and_no_work() -> None:
    clock = watched(toy("gpt2"), toy("llama"), 2, "eager")
    assert clock.work["own"] == [0, 0]
    assert clock.elsewhere == clock.seconds != 0


@pytest.mark.usefixtures("ticks")
def test_a_claim_that_has_taken_too_long_ends_between_steps_on_any_model() -> None:
    subject, other = toy("gpt2"), toy("llama")
    clock = ForwardClock(brake=0.0)
    with clock.watching(subject), pytest.raises(Braked), stepping(other.model, 1, 1):
        pytest.fail("a step began")
