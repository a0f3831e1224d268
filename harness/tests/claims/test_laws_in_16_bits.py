"""Laws in bfloat16 on models of which rounding alone moves some rows far (docs/tolerance.md)."""

from __future__ import annotations

import copy

import pytest
import torch
from transformers.models.qwen2 import modeling_qwen2

from assay.claims.cache import test_execution, test_padding
from assay.harness import faults
from assay.harness.checking.comparing import BY_ROUNDING
from assay.harness.models.loading import loading
from assay.harness.models.reference.tolerances import Tolerance
from assay.harness.models.subject import Subject
from assay.harness.results.verdicts import HIDDEN, Verdict
from assay.harness.tests.support.nightly import nightly
from assay.harness.tests.support.toys import adopted, budget, toy, verdict

ATTENTION = test_execution.test_attention_implementations_agree
PADDED = test_execution.test_attention_implementations_agree_on_padded_batches
EAGER = {"implementation": "eager"}
TWICE = test_execution.test_asking_for_the_states_changes_no_logits
MATES = test_padding.test_batch_mates_change_nothing
LONE = test_padding.test_padding_changes_nothing_in_a_batch_of_one_row


@pytest.mark.parametrize(
    ("claim", "spec"),
    [
        (MATES, "doge"),
        nightly(TWICE, "gemma3n_text"),
        nightly(MATES, "deepseek_v32"),
        nightly(LONE, "dbrx"),
    ],
)
def test_a_sound_model_is_not_accused(claim, spec):
    result = verdict(claim, toy(spec, "bfloat16"), budget(12))
    assert result.verdict is Verdict.UPHELD, result.reason


def with_large_scores() -> Subject:
    """Keys and queries with large biases, as in Qwen2.5.

    Scores of thousands are rounded to multiples of 8 and more by eager attention, which keeps
    them in bfloat16.
    """
    subject = adopted("qwen2")
    for number, block in enumerate(subject.blocks):
        for layer in (block.self_attn.q_proj, block.self_attn.k_proj):
            drawn = torch.randn(layer.bias.shape, generator=torch.Generator().manual_seed(number))
            layer.bias.data = 96 * drawn
    half = {"dtype": torch.bfloat16, "device": subject.device}
    return loading.adopt("tiny:qwen2", subject.model, None, **half).subject


@pytest.mark.parametrize("claim", [ATTENTION, nightly(PADDED)])
def test_eager_attention_that_rounds_its_large_scores_is_not_accused(claim):
    result = verdict(claim, with_large_scores(), budget(12), arguments=EAGER)
    assert result.verdict is Verdict.UPHELD, result.reason


def test_an_error_that_rounds_alike_is_refuted(monkeypatch):
    usual = modeling_qwen2.eager_attention_forward

    def halved(*args, **kwargs):
        output, weights = usual(*args, **kwargs)
        return output / 2, weights

    monkeypatch.setattr(modeling_qwen2, "eager_attention_forward", halved)
    result = verdict(ATTENTION, with_large_scores(), budget(4), arguments=EAGER)
    assert result.verdict is Verdict.REFUTED, result.reason


@pytest.mark.parametrize("spec", [nightly("mixtral"), "llama"])
def test_a_fault_is_caught_all_the_same(spec):
    shared = toy(spec, "bfloat16")
    damaged = Subject(shared.name, copy.deepcopy(shared.model), None, shared.digest)
    with faults.injected(faults.named("padding-mask-ignored-in-a-lone-row"), damaged) as broken:
        result = verdict(LONE, broken, budget(6))
    assert result.verdict is Verdict.REFUTED, result.reason


def test_a_law_of_which_rounding_decides_every_row_fails_no_run(monkeypatch):
    monkeypatch.setattr(Tolerance, "largest", property(lambda self: -1.0))
    result = verdict(TWICE, toy("llama", "bfloat16"), budget(4))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.reason.endswith(BY_ROUNDING)
    assert result.details[HIDDEN]
    wide = verdict(TWICE, toy("llama"), budget(4))
    assert wide.verdict is Verdict.UPHELD
