"""Two models that differ where few prompts go, and sound pairs that were called different."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from assay.fixtures import families
from assay.harness.checking.profiles import PROFILES
from assay.harness.models.loading.wrapping import wrap
from assay.harness.models.reference.float64 import reference_of
from assay.harness.models.subject import Subject
from assay.harness.models.subject.settings import SubjectSettings
from assay.harness.operations import parity
from assay.harness.operations.parity import tensors
from assay.harness.results.verdicts import Verdict

UPHELD, REFUTED = Verdict.UPHELD, Verdict.REFUTED


def subject(model, name="model"):
    return Subject(
        name, wrap(name, model.eval().requires_grad_(False)), settings=SubjectSettings("causal")
    )


def compared(model, other, states=True):
    return parity.compare(
        subject(model), subject(other, "original"), PROFILES["glance"], 0, states
    )


@pytest.fixture
def original():
    return families.tiny("llama")


def test_a_head_that_is_stored_twice_is_the_same_numbers(original):
    tied = copy.deepcopy(original)
    tied.lm_head.weight = tied.model.embed_tokens.weight
    twice = copy.deepcopy(tied)
    twice.lm_head.weight = nn.Parameter(tied.lm_head.weight.detach().clone())
    assert tensors.same_numbers(subject(tied), subject(twice))
    with torch.no_grad():
        twice.lm_head.weight[3, 3] += 1e-3
    assert not tensors.same_numbers(subject(tied), subject(twice))


def test_ids_whose_embeddings_differ_are_tried(original):
    other = copy.deepcopy(original)
    with torch.no_grad():
        other.model.embed_tokens.weight[77] += 0.5
    assert tensors.unlike_embeddings(subject(original), subject(other)).tolist() == [77]
    batches = parity.comparison.prompts(subject(original), subject(other), PROFILES["glance"], 0)
    assert any(bool((ids == 77).all()) for ids in batches)
    assert compared(original, other).verdict is REFUTED


class AloneOtherwise(nn.Module):
    """A model whose logits differ where its batch has one row."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, input_ids):
        logits = self.inner(input_ids).logits
        return logits * (1.3 if len(input_ids) == 1 else 1.0)


def test_an_error_of_single_rows_is_seen(original):
    assert compared(AloneOtherwise(original), original, states=False).verdict is REFUTED


class Rotated(nn.Module):
    """A model whose logits are turned by a complex buffer, as some rotary tables are."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        angles = torch.arange(inner.config.vocab_size // 2).float()
        self.register_buffer("turn", torch.polar(torch.ones_like(angles), angles))

    def forward(self, input_ids):
        logits = self.inner(input_ids).logits
        size = 2 * len(self.turn)
        pairs = logits[..., :size].unflatten(-1, (-1, 2)).contiguous()
        turned = torch.view_as_real(torch.view_as_complex(pairs) * self.turn)
        return torch.cat([turned.flatten(-2), logits[..., size:]], dim=-1)


def test_complex_buffers_stay_complex_in_float64(original):
    pair = Rotated(original), Rotated(copy.deepcopy(original))
    assert compared(*pair, states=False).verdict is UPHELD
    exact = reference_of(subject(pair[0])).model.get_buffer("inner.turn")
    assert exact.dtype == torch.complex128
    assert bool(exact.imag.any())
