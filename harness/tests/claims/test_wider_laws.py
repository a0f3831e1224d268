"""Laws that share a number with others: each catches a fault by itself."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import cache_utils
from transformers.models.llama import modeling_llama

from assay.claims.cache import test_cache as cache
from assay.claims.cache import test_cache_operations as operations
from assay.claims.cache import test_execution as execution
from assay.claims.cache import test_generation as generation
from assay.claims.cache import test_masks as masks
from assay.claims.cache import test_padding as padding
from assay.claims.order import test_order as order
from assay.claims.positions import test_positions as positions
from assay.harness import faults
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.toys import budget, toy, verdict

FEW = budget(8, shrink=0)
REARRANGED = operations.test_a_rearranged_cache_is_that_of_the_rows_rearranged

CASES: list[tuple[Any, dict[str, str], str, str]] = [
    (cache.test_chunks_of_any_size_give_the_same, {}, "mistral", "window-crop-one-too-far"),
    (
        cache.test_the_room_of_a_static_cache_changes_nothing,
        {"spare": cache.LONGEST},
        "llama",
        "cache-overwritten",
    ),
    (
        cache.test_attention_to_the_encoder_is_cached,
        {},
        "t5",
        "encoder-stale-for-a-second-prompt",
    ),
    (REARRANGED, {"operation": "reorder_cache"}, "llama", "cache-rows-swapped"),
    (operations.test_drafts_taken_back_leave_no_trace, {}, "llama", "cache-crop-left-out"),
    (
        operations.test_a_copy_of_a_cache_goes_on_alone,
        {"kind": "default"},
        "llama",
        "cache-shared-with-its-copy",
    ),
    (padding.test_padding_and_batch_mates_change_nothing, {}, "gpt2", "padding-mask-ignored"),
    (padding.test_the_mask_alone_tells_of_left_padding, {}, "llama", "padding-mask-ignored"),
    (padding.test_what_stands_before_the_padding_does_not_see_it, {}, "llama", "padding-leaks"),
    *(
        (
            padding.test_a_padded_batch_is_decoded_as_each_prompt_alone,
            {"kind": kind, "first": first},
            "llama",
            "padding-mask-ignored",
        )
        for kind, first in [("default", "prefill"), ("static", "chunks")]
    ),
    (
        padding.test_padding_of_the_encoder_s_prompt_changes_nothing,
        {},
        "t5",
        "padding-mask-ignored",
    ),
    (
        positions.test_positions_given_are_positions_counted,
        {"shape": "one row"},
        "gpt2",
        "explicit-positions-off-by-one",
    ),
    (
        positions.test_positions_given_beside_a_cache_are_positions_counted,
        {},
        "llama",
        "explicit-positions-off-by-one-when-cached",
    ),
    (
        masks.test_the_causal_mask_given_is_the_model_s_own,
        {},
        "llama",
        "given-mask-ignored-past-a-length",
    ),
    (
        masks.test_the_causal_mask_given_beside_a_cache_is_the_model_s_own,
        {},
        "llama",
        "given-mask-shifted-when-cached",
    ),
    (masks.test_a_4d_mask_hides_padding_too, {}, "llama", "padding-mask-dropped-under-sdpa"),
    (
        execution.test_attention_implementations_agree_on_padded_batches,
        {"implementation": "eager"},
        "llama",
        "scale-missing-under-sdpa",
    ),
    (
        execution.test_a_pass_changes_nothing_that_it_is_given,
        {"path": "embeddings"},
        "llama",
        "embeddings-changed-in-place",
    ),
    (
        execution.test_a_pass_does_not_depend_on_those_before_it,
        {},
        "llama",
        "states-drawn-at-random",
    ),
    (
        execution.test_saving_and_loading_change_nothing_in_bfloat16,
        {},
        "llama",
        "norm-lost-by-saving",
    ),
    (
        generation.test_a_padded_batch_is_continued_as_each_prompt_alone,
        {"mode": "greedy"},
        "llama",
        "padding-mask-ignored",
    ),
    (
        generation.test_generation_is_the_same_with_and_without_the_cache,
        {"mode": "static"},
        "mistral",
        "cache-dropped-past-the-window",
    ),
    (
        generation.test_beam_search_finds_the_same_scores_with_and_without_the_cache,
        {},
        "llama",
        "beam-reorder-left-out",
    ),
]


@pytest.mark.parametrize(
    ("law", "arguments", "spec", "fault"),
    CASES,
    ids=[f"{law.__name__[5:]}-{fault}" for law, _, _, fault in CASES],
)
def test_a_law_catches_a_fault(law, arguments, spec, fault):
    with faults.injected(faults.named(fault), toy(spec)) as damaged:
        result = verdict(law, damaged, FEW, arguments=dict(arguments))
    assert result.verdict is Verdict.REFUTED, result.reason


def the_first_rows(layer: Any, rows: torch.Tensor) -> None:
    layer.keys, layer.values = layer.keys[: len(rows)], layer.values[: len(rows)]


def one_after_another(layer: Any, repeats: int) -> None:
    layer.keys = layer.keys.repeat(repeats, 1, 1, 1)
    layer.values = layer.values.repeat(repeats, 1, 1, 1)


@pytest.mark.parametrize(
    ("name", "broken"),
    [("batch_select_indices", the_first_rows), ("batch_repeat_interleave", one_after_another)],
)
def test_a_cache_with_a_broken_operation_is_caught(name, broken, monkeypatch):
    monkeypatch.setattr(cache_utils.DynamicLayer, name, broken, raising=False)
    result = verdict(REARRANGED, toy("llama"), FEW, arguments={"operation": name})
    assert result.verdict is Verdict.REFUTED, result.reason


@pytest.mark.parametrize("model_type", ["flint", "llama"])
def test_one_layer_is_blind_to_order_with_positions_to_take_out_and_without(model_type):
    law = order.test_one_layer_without_positions_cannot_see_order
    assert verdict(law, toy(model_type), FEW).verdict is Verdict.UPHELD


def test_an_error_of_one_implementation_is_not_taken_for_its_rounding(monkeypatch):
    usual = modeling_llama.eager_attention_forward

    def scaled(*args, **kwargs):
        output, weights = usual(*args, **kwargs)
        return output * (1 + 1e-3), weights

    monkeypatch.setattr(modeling_llama, "eager_attention_forward", scaled)
    claim = execution.test_attention_implementations_agree
    result = verdict(claim, toy("llama"), FEW, arguments={"implementation": "eager"})
    assert result.verdict is Verdict.REFUTED, result.reason
