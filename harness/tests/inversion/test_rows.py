"""Rows of a descent that end early, are watched, diverge, or find no memory or no sense."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from assay.harness.inversion import Descent, Rule, descend, descent
from assay.harness.inversion.batch import Batch
from assay.harness.tests.support.descents import ROWS, RULE, same, some, task


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


def test_at_the_threshold_is_not_below_it():
    inputs = task(1)
    first = descend(*inputs, RULE).losses[:, 0]
    assert descend(*inputs, RULE, thresholds=first).close.tolist() != [0]
    assert descend(*inputs, RULE, thresholds=first * 1.0001).close.tolist() == [0]


def test_without_a_threshold_nothing_is_close():
    assert descend(*task(), RULE).close.tolist() == [math.inf] * ROWS


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


def test_rows_are_not_over_where_some_of_them_are_in_another_batch(monkeypatch):
    inputs = task()
    thresholds = torch.zeros(ROWS)
    monkeypatch.setattr(descent, "rows_that_fit", lambda *_: 2)

    def over(*_):
        raise AssertionError("all rows are not there")

    made = descend(*inputs, RULE, thresholds=thresholds, until_close=True, over=over)
    assert not bool(made.losses.isnan().any())


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


def test_watching_changes_nothing():
    inputs = task()
    made, watched = (descend(*inputs, RULE, watch=watch) for watch in ((), range(21)))
    assert same(made.embeddings, watched.embeddings)
    assert same(made.losses, watched.losses)
    assert len(watched.watched) == 21


@pytest.mark.parametrize("at_once", [1, 2, 5])
def test_a_row_that_has_ended_is_watched_where_it_ended(monkeypatch, at_once):
    inputs = task()
    thresholds = thresholds_for(descend(*inputs, RULE), [2, 3, 99, 3, 4])
    monkeypatch.setattr(descent, "rows_that_fit", lambda *_: at_once)
    made = descend(*inputs, RULE, thresholds=thresholds, until_close=True, watch=[3, 20])
    assert list(made.watched) == [3, 20]
    assert same(made.watched[20], made.embeddings)
    assert not same(made.watched[3], made.embeddings)


def test_who_is_told_hears_what_is_watched():
    inputs, reports = task(), {}

    def tell(rows, step, embeddings, losses):
        assert rows == slice(0, ROWS)
        reports[step] = embeddings.clone(), losses

    made = descend(*inputs, RULE, watch=[0, 3, 20], tell=tell)
    assert list(reports) == [0, 3, 20]
    for step, (embeddings, losses) in reports.items():
        assert torch.equal(embeddings, made.watched[step])
        assert same(losses, made.losses[:, step])


def test_who_is_told_hears_no_loss_of_a_row_that_has_ended():
    inputs, reports = task(), {}
    thresholds = thresholds_for(descend(*inputs, RULE), [3, 99, 99, 99, 99])
    descend(
        *inputs,
        RULE,
        thresholds=thresholds,
        until_close=True,
        watch=[5, 10],
        tell=lambda rows, step, embeddings, losses: reports.update(
            {step: losses.isnan().tolist()}
        ),
    )
    assert reports == {5: [False] * 5, 10: [True] + [False] * 4}
