"""Sinks of attention, whether or not its weights tell of them."""

from __future__ import annotations

import pytest
import torch

from assay.harness.models.capabilities import probe, sinks
from assay.harness.models.subject import passes
from assay.harness.tests.support.toys import prompt, toy


@pytest.mark.parametrize(
    ("model_type", "has"),
    [("gpt_oss", True), ("granite_swa", True), ("llama", False), ("bloom", False), ("t5", False)],
)
def test_sinks_are_heard_of_where_attention_is_given_them(model_type, has):
    assert sinks.present(toy(model_type)) is has


def test_a_sink_that_scales_what_comes_of_attention_is_not_whole_attention():
    subject = toy("granite_swa")
    sums = [layer.sum(-1) for layer in passes.attentions(subject, prompt(subject))]
    assert all(torch.allclose(each, torch.ones_like(each)) for each in sums)
    assert "a sink" in probe(subject).why_missing("whole-attention")
    assert "a sink" in probe(toy("gpt_oss")).why_missing("whole-attention")
    assert "whole-attention" in probe(toy("llama"))
