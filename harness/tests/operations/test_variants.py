"""Copies that must compute the same, and damage that must not last."""

from __future__ import annotations

from contextlib import suppress

import pytest
import torch
from transformers import GPT2LMHeadModel
from transformers.models.gpt2.modeling_gpt2 import GPT2MLP

from assay.harness.models.capabilities import Missing, releases
from assay.harness.models.subject import compat
from assay.harness.operations import differences, variants
from assay.harness.tests.support.toys import fresh, toy


def test_a_nudge_changes_one_embedding_and_does_not_last():
    subject = fresh("gpt2")
    before = subject.embedding_table.detach().clone()
    with suppress(ZeroDivisionError), variants.nudge_embedding(subject, 7):
        changed = (subject.embedding_table != before).any(1)
        assert changed.nonzero().flatten().tolist() == [7]
        raise ZeroDivisionError
    assert torch.equal(subject.embedding_table, before)


def test_another_attention_is_one_that_the_model_takes_and_does_not_run_with():
    subject = toy("llama")
    variants.require_attention(subject, "eager")
    assert subject.attention == "sdpa"
    with pytest.raises(Missing, match="sdpa is the implementation that the model already uses"):
        variants.require_attention(subject, "sdpa")


@pytest.mark.parametrize(("model_type", "implementation"), [("bloom", "sdpa"), ("mamba", "eager")])
def test_an_attention_that_a_model_has_not_is_missing(model_type, implementation):
    subject = fresh(model_type)
    usual = subject.attention
    with pytest.raises(Missing):
        variants.require_attention(subject, implementation)
    assert subject.attention == usual


def test_an_attention_that_does_not_reach_the_parts_is_missing(monkeypatch):
    subject = fresh("t5")
    variants.require_attention(subject, "eager")
    assert releases.attentions_in_force(subject.model) == {"sdpa"}
    subject = fresh("t5")  # the other one's answer is known
    whole = subject.model.config
    monkeypatch.setattr(
        compat, "set_attention", lambda model, name: setattr(whole, "_attn_implementation", name)
    )
    with pytest.raises(Missing, match="does not attend by eager: its parts are not switched"):
        variants.require_attention(subject, "eager")


# Fewer bits.


def test_eight_bits_round_each_row_to_255_numbers_and_leave_the_subject_alone():
    subject = toy("gpt2")
    kept = [p.clone() for p in subject.model.parameters()]
    quantised = variants.quantised(subject)
    pairs = zip(quantised.blocks.parameters(), subject.blocks.parameters(), strict=True)
    for rounded, exact in pairs:
        if exact.ndim != 2:
            assert torch.equal(rounded, exact)
            continue
        scale = exact.abs().amax(1, keepdim=True) / 127
        assert ((rounded - exact).abs() <= scale / 2 * (1 + 1e-4)).all()
        assert (rounded / scale).round().allclose(rounded / scale, atol=1e-3)
        assert not torch.equal(rounded, exact)
    assert all(torch.equal(a, b) for a, b in zip(kept, subject.model.parameters(), strict=True))
    assert variants.quantised(subject) is quantised


def test_weights_that_a_copy_keeps_rounded_or_as_they_are_are_not_lost():
    subject = fresh("nllb-moe")
    rounded = variants.in_bfloat16(subject)
    assert differences.weights_lost(subject, rounded) == 0
    rounded.rows(rounded.content(torch.arange(4)[None]))  # turns its routers into float32
    assert {p.dtype for p in rounded.model.parameters()} == {torch.bfloat16, torch.float32}
    assert differences.weights_lost(subject, rounded) == 0
    with variants.flip_last_bit(rounded):
        assert 0 < differences.weights_lost(subject, rounded) < 1


def test_a_model_that_does_not_run_in_bfloat16_lacks_it(monkeypatch):
    """Such as experts whose rows are no multiple of 16 bytes, by grouped products."""
    subject = fresh("gpt2")
    forward = GPT2LMHeadModel.forward

    def refuse(self, *args, **kwargs):
        if self.dtype == torch.bfloat16:
            raise RuntimeError("strides should be multiple of 16 bytes")
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(GPT2LMHeadModel, "forward", refuse)
    with pytest.raises(Missing, match=r"bfloat16: the model does not run in it .*16 bytes"):
        variants.in_bfloat16(subject)


def test_a_model_that_mixes_dtypes_is_not_taken_for_one_without_bfloat16(monkeypatch):
    """Its own code takes states to float32, and multiplies them with weights of bfloat16."""
    subject = fresh("gpt2")
    forward = GPT2MLP.forward
    monkeypatch.setattr(GPT2MLP, "forward", lambda self, states: forward(self, states.float()))
    with pytest.raises(RuntimeError, match="dtype"):
        variants.in_bfloat16(subject)
