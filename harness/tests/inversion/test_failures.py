"""Rows of a descent that diverge, find no memory, or make no sense."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from assay.harness.inversion import Rule, descend, replay
from assay.harness.inversion.batch import DIVERGED, Batch
from assay.harness.results.errors import BadInput
from assay.harness.tests.support.descents import ROWS, RULE, same, some, task

# Diverged.


@pytest.mark.parametrize(
    ("optimiser", "every"),
    [("descent", 1), ("descent", 10), ("adam", 3)],
)
def test_a_row_that_diverges_goes_on_more_slowly_and_its_mates_as_before(optimiser, every):
    inputs = task()
    rule = Rule(50, optimiser, every=every)
    rates = inputs[4].clone() if optimiser == "descent" else torch.full((ROWS,), 0.05).double()
    calm = descend(*inputs[:4], rates, rule)
    rates[1] *= 1e3
    made = descend(*inputs[:4], rates, rule)
    assert not calm.lowered.any()
    assert not calm.notes
    assert made.lowered.nonzero()[:, 0].tolist() == [1]
    assert made.notes == [f"1 of {ROWS} rows diverged; their learning rates were lowered"]
    assert bool(made.losses[1].isfinite().all())
    assert bool((made.losses[1] <= DIVERGED * made.losses[1, 0]).all())
    mates = [0, 2, 3, 4]
    assert same(made.embeddings[mates], calm.embeddings[mates])
    subject, target, wanted, _, _ = inputs
    left = (target.output(subject, embeddings=made.embeddings) - wanted).abs().sum((1, 2))
    assert same(made.losses[:, -1], left)
    assert bool((made.final < made.losses[:, 0]).all())


def explode(monkeypatch: pytest.MonkeyPatch, row: int, step: int) -> None:
    """At ``step`` the loss of ``row``, and what it says about the way down, is a million times."""
    loss = Batch._loss

    def with_one_more(batch: Batch, x: Tensor) -> Tensor:
        here = (batch.rows == row) & (batch.step == step)
        return loss(batch, x) * torch.where(here, 1e6, 1.0)

    monkeypatch.setattr(Batch, "_loss", with_one_more)
    # A replay is of a loss that depends on ``x`` alone.
    monkeypatch.setattr(replay, "replayed", lambda function, x: function)


@pytest.mark.parametrize(("every", "begin", "fine"), [(5, 5, 5), (1, 7, 6)])
def test_a_row_that_diverges_later_goes_back_to_where_it_last_was_fine(
    monkeypatch, every, begin, fine
):
    """Seen at the look after step 7; where every step is looked at, that is too late for it."""
    inputs, rule, look = task(), Rule(20, schedule="constant", every=every), begin + every
    calm = descend(*inputs, rule, watch=[5, 6])
    explode(monkeypatch, 1, 7)
    made = descend(*inputs, rule, watch=[look])
    assert made.lowered.tolist() == [0, 1, 0, 0, 0]
    assert same(made.watched[look][1], calm.watched[fine][1])
    assert same(made.losses[1, begin : look + 1], calm.losses[1, fine].expand(every + 1))
    assert same(made.losses[1, :begin], calm.losses[1, :begin])
    assert bool(made.final[1] < made.losses[1, look])


def test_a_row_goes_back_to_its_own_state_where_others_were_dropped_meanwhile(monkeypatch):
    inputs, dropped = task(), torch.tensor([True, False, True, True, False])
    thresholds = torch.where(dropped, descend(*inputs, RULE).losses[:, 0] * 2, 0)
    explode(monkeypatch, 1, 5)
    made = descend(*inputs, RULE, thresholds=thresholds, until_close=True, watch=[5, 10])
    assert made.lowered.tolist() == [0, 1, 0, 0, 0]
    assert torch.equal(made.watched[10][1], inputs[3][1])
    assert not torch.equal(made.watched[5][1], inputs[3][1])


def test_a_row_that_cannot_begin_is_said_to_diverge_and_harms_no_other():
    inputs = task()
    inputs[3][2] = math.nan
    made = descend(*inputs, RULE)
    mates = [0, 1, 3, 4]
    assert same(made.embeddings[mates], descend(*some(inputs, mates), RULE).embeddings)
    assert made.lowered.nonzero()[:, 0].tolist() == [2]
    assert made.final.isnan().tolist() == [False, False, True, False, False]


# Memory.


def test_out_of_memory_halves_the_rows_says_so_and_changes_nothing(monkeypatch):
    inputs = task()
    whole, went, loss = descend(*inputs, RULE), [], Batch._loss

    def narrow(batch, x):
        went.append(len(x))
        if len(x) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return loss(batch, x)

    monkeypatch.setattr(Batch, "_loss", narrow)
    made = descend(*inputs, RULE)
    assert made.notes == ["too little memory: 2 rows at a time"]
    assert sorted(set(went)) == [1, 2, 5]
    assert same(made.embeddings, whole.embeddings)
    assert same(made.losses, whole.losses)
    assert not whole.notes


# Bad input.


def altered(**changes: Tensor) -> tuple:
    """A good task but for ``changes``."""
    subject, target, *rest = task()
    named = dict(zip(("wanted", "begin", "rates"), rest, strict=True)) | changes
    return subject, target, *named.values()


BAD = {
    "holds numbers that are not finite": {"wanted": torch.full((ROWS, 5, 32), math.nan)},
    "block 1 has 32 features and not 31": {"wanted": torch.zeros(ROWS, 5, 31)},
    r"\[rows, n, features\] are needed and not \[5, 32\]": {"wanted": torch.zeros(5, 32)},
    r"are needed and not \[5, 0, 32\]": {"wanted": torch.zeros(ROWS, 0, 32)},
    r"are needed and not \[0, 5, 32\]": {"wanted": torch.zeros(0, 5, 32)},
    "65 positions and a context of 64": {"wanted": torch.zeros(ROWS, 65, 32)},
    r"start: its shape is \[5, 4, 32\]": {"begin": torch.zeros(ROWS, 4, 32)},
    r"start: its shape is \[5, 5, 31\]": {"begin": torch.zeros(ROWS, 5, 31)},
    r"rates: 5 rows, and the shape is \[1\]": {"rates": torch.ones(1)},
}


@pytest.mark.parametrize(("words", "change"), BAD.items())
def test_what_cannot_be_descended_on_is_one_clear_line(words, change):
    with pytest.raises(BadInput, match=words) as raised:
        descend(*altered(**change))
    assert "\n" not in str(raised.value)
