"""Copies that must compute the same, and damage that must not last."""

from __future__ import annotations

from contextlib import suppress

import pytest
import torch

from harness import twins
from harness.capabilities import Missing
from harness.rows import Rows
from harness.tests.toys import fresh, prompt, toy


@pytest.mark.parametrize("model_type", ["gpt2", "t5"])
def test_a_saved_model_is_loaded_bit_for_bit_and_once(model_type):
    subject = toy(model_type)
    copy = twins.saved_and_loaded(subject)
    assert copy.model is not subject.model
    assert copy is twins.saved_and_loaded(subject)
    theirs = copy.model.state_dict()
    assert all(torch.equal(t, theirs[name]) for name, t in subject.model.state_dict().items())


def test_a_saved_model_keeps_its_dtype():
    assert twins.saved_and_loaded(toy("gpt2", "bfloat16")).dtype == torch.bfloat16


def test_the_share_that_differs_is_the_worst_tensor_s():
    one = Rows({"state 0": torch.zeros(1, 2, 2), "logits": torch.zeros(1, 2, 4)})
    other = Rows({"state 0": torch.tensor([[[0.0, 1], [0, 0]]]), "logits": torch.zeros(1, 2, 4)})
    assert twins.share_that_differs(one, one) == 0
    assert twins.share_that_differs(one, other) == 0.25


def test_a_nudge_changes_one_embedding_and_does_not_last():
    subject = fresh("gpt2")
    before = subject.embedding_table.detach().clone()
    with suppress(ZeroDivisionError), twins.nudged(subject, 7):
        changed = (subject.embedding_table != before).any(1)
        assert changed.nonzero().flatten().tolist() == [7]
        raise ZeroDivisionError
    assert torch.equal(subject.embedding_table, before)


def test_a_nudged_prompt_gives_something_else():
    subject = fresh("llama")
    ids = prompt(subject)
    before = subject.rows(ids)
    with twins.nudged(subject, int(ids[0, 0])):
        assert twins.share_that_differs(before, subject.rows(ids)) > 0.1
    assert twins.share_that_differs(before, subject.rows(ids)) == 0


def test_another_attention_is_one_that_the_model_takes_and_does_not_run_with():
    subject = toy("llama")
    twins.require_attention(subject, "eager")
    assert subject.attention == "sdpa"
    with pytest.raises(Missing, match="sdpa is what the model is run with"):
        twins.require_attention(subject, "sdpa")


@pytest.mark.parametrize(("model_type", "implementation"), [("bloom", "sdpa"), ("mamba", "eager")])
def test_an_attention_that_a_model_has_not_is_missing(model_type, implementation):
    subject = fresh(model_type)
    usual = subject.attention
    with pytest.raises(Missing):
        twins.require_attention(subject, implementation)
    assert subject.attention == usual
