"""Packed samples in models that keep a state: kept apart by their lengths, refused, or mixed."""

from __future__ import annotations

import pytest
import torch
from transformers import masking_utils
from transformers.models.qwen3_5 import modeling_qwen3_5

from assay.claims.running import test_packing
from assay.harness.models import capabilities
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.toys import budget, fresh, toy, verdict

APART = test_packing.test_samples_packed_into_one_row_are_kept_apart_by_their_lengths
ONES = test_packing.test_beside_a_mask_of_ones_all_layers_keep_samples_apart_or_none
WHAT = "beside a mask of ones"
CONVOLUTION = modeling_qwen3_5.causal_conv1d_fn
RULE = modeling_qwen3_5.torch_chunk_gated_delta_rule


def convolved_apart(states, *args, seq_idx=None, **named):
    """As the kernel does: each sample of ``states`` [1, width, n] by itself."""
    named = {name: value for name, value in named.items() if not name.startswith("cu_seq")}
    if seq_idx is None:
        return CONVOLUTION(states, *args, **named)
    sizes = torch.unique_consecutive(seq_idx[0], return_counts=True)[1].tolist()
    return torch.cat([CONVOLUTION(each, *args, **named) for each in states.split(sizes, -1)], -1)


def ruled_apart(query, key, value, *, g, beta, cu_seqlens=None, seq_idx=None, **named):
    """As the kernel does: each sample of [1, n, heads, width] from a state of zeros."""
    if cu_seqlens is None:
        return RULE(query, key, value, g=g, beta=beta, **named)
    sizes = cu_seqlens.diff().tolist()
    split = zip(*(each.split(sizes, 1) for each in (query, key, value, g, beta)), strict=True)
    rows = [RULE(q, k, v, g=gate, beta=b, **named)[0] for q, k, v, gate, b in split]
    return torch.cat(rows, 1), None


def convolved_over(states, *args, seq_idx=None, **named):
    """As the thread describes: the samples' lengths change nothing."""
    return convolved_apart(states, *args, **named)


def ruled_over(*args, cu_seqlens=None, seq_idx=None, **named):
    """The same."""
    return RULE(*args, **named)


@pytest.fixture
def kernels(monkeypatch):
    """Replaces what the library calls for a convolution and for the delta rule."""

    def use(convolution, rule):
        monkeypatch.setattr(modeling_qwen3_5, "causal_conv1d_fn", convolution)
        monkeypatch.setattr(modeling_qwen3_5, "torch_chunk_gated_delta_rule", rule)

    return use


def test_lengths_that_kernels_read_keep_samples_apart(kernels):
    kernels(convolved_apart, ruled_apart)
    result = verdict(APART, fresh("qwen3_5_text"), budget(4))
    assert result.verdict is Verdict.UPHELD, result.reason


@pytest.mark.parametrize(
    "mixing",
    [(convolved_over, ruled_apart), (convolved_apart, ruled_over)],
)
def test_a_state_that_goes_on_into_the_next_sample_is_caught(kernels, mixing):
    kernels(*mixing)
    result = verdict(APART, fresh("qwen3_5_text"), budget(4))
    assert result.verdict is Verdict.REFUTED, result.reason


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("qwen3_5_text", "the library refuses: `causal_conv1d_fn` can't keep packed sequences"),
        ("lfm3", "the library refuses: `causal_conv1d_fn` can't keep packed sequences"),
        ("bamba", "the library refuses: `causal_conv1d_fn` can't keep packed sequences"),
        ("mamba", "no layer that keeps a state is given the lengths of samples"),
        ("llama", "the cache holds keys and values and nothing else"),
    ],
)
def test_why_samples_are_not_kept_apart_by_lengths(spec, why):
    assert str(capabilities.probe(toy(spec)).why_missing("packed-lengths")).startswith(why)


def test_a_mask_of_ones_ends_packing_in_all_layers(monkeypatch):
    assert verdict(ONES, fresh("llama"), budget(4)).details[WHAT] == test_packing.TOGETHER
    broken = toy("llama+packed-samples-apart-in-some-layers")
    assert verdict(ONES, broken, budget(4)).verdict is Verdict.REFUTED
    usual = masking_utils._preprocess_mask_arguments

    def without_ones(config, embeddings, mask, *args, **named):  # as in transformers#46634
        plain = mask is not None and mask.ndim == 2 and bool(mask.all())
        return usual(config, embeddings, None if plain else mask, *args, **named)

    monkeypatch.setattr(masking_utils, "_preprocess_mask_arguments", without_ones)
    result = verdict(ONES, fresh("llama"), budget(4))
    assert (result.verdict, result.details[WHAT]) == (Verdict.UPHELD, test_packing.APART)
