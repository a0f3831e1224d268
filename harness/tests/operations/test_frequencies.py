"""Rotary frequencies by their formulas, and models that are made to use them."""

from __future__ import annotations

import pytest
import torch

from assay.harness.models.capabilities import Missing
from assay.harness.operations import frequencies
from assay.harness.tests.support.toys import fresh, toy


def buffers(subject):
    return [b.clone() for n, b in subject.model.named_buffers() if n.endswith("inv_freq")]


@pytest.mark.parametrize("kind", ["linear", "dynamic", "yarn", "longrope", "llama3"])
def test_a_formula_gives_what_the_library_computes_for_a_short_prompt(kind):
    subject = toy(f"tiny:llama+{kind}")
    own, factor = frequencies.of_length(subject, 16)
    module = next(m for m in subject.model.modules() if hasattr(m, "attention_scaling"))
    subject.rows(subject.content(torch.arange(3)[None]))
    assert torch.allclose(own, module.inv_freq, rtol=1e-6)
    assert factor == pytest.approx(module.attention_scaling)


def test_a_model_rotates_otherwise_within_the_block_only():
    subject = fresh("tiny:llama+yarn")
    ids, before = subject.content(torch.arange(9)[None]), buffers(subject)
    usual = subject.rows(ids)["logits"]
    with frequencies.by_formula(subject, 9, scaled=False):
        assert not torch.allclose(subject.rows(ids)["logits"], usual)
    assert torch.equal(subject.rows(ids)["logits"], usual)
    assert all(torch.equal(a, b) for a, b in zip(before, buffers(subject), strict=True))


def test_dynamic_scaling_forgets_a_long_prompt():
    subject = fresh("tiny:llama+dynamic")
    ids = subject.content(torch.arange(40)[None])
    subject.rows(ids[:, :4])  # another test may have left the frequencies of a long prompt
    before = buffers(subject)
    with frequencies.forgotten(subject, ids):
        subject.rows(ids)
        assert not torch.equal(buffers(subject)[0], before[0])
    assert torch.equal(buffers(subject)[0], before[0])


@pytest.mark.parametrize("spec", ["gpt2", "llama"])
def test_a_model_without_a_scaled_rotation_says_so(spec):
    with pytest.raises(Missing, match="no module keeps the frequencies"):
        frequencies.require(toy(spec))
