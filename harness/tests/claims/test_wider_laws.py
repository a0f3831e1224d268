"""The laws on caches, padding, masks and inputs: each catches a model that is broken for it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from transformers import cache_utils

from assay.claims.cache import test_cache as cache
from assay.claims.cache import test_cache_operations as operations
from assay.claims.cache import test_execution as execution
from assay.claims.cache import test_generation as generation
from assay.claims.cache import test_masks as masks
from assay.claims.cache import test_padding as padding
from assay.claims.order import test_order as order
from assay.claims.positions import test_positions as positions
from assay.harness import faults
from assay.harness.models.subject import Subject, roles
from assay.harness.models.subject.roles import Role
from assay.harness.operations import variants
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.toys import budget, fresh, seeing_ahead, toy, verdict

FEW = budget(12, shrink=20)


def with_other_arguments(spec: str, change: Callable[[dict[str, Any]], None]) -> Subject:
    """A copy of a tiny model whose forward pass is given other arguments than the caller's."""

    def hook(module: Any, arguments: tuple, named: dict[str, Any]) -> tuple:
        named = dict(named)
        change(named)
        return arguments, named

    subject = fresh(spec)
    subject.model.register_forward_pre_hook(hook, with_kwargs=True)
    return subject


def past(named: dict[str, Any]) -> int:
    """Tokens in the cache that a pass is given."""
    kept = roles.value(named, Role.CACHE)
    return int(kept.get_seq_length()) if kept is not None else 0


def moved_on(named: dict[str, Any]) -> None:
    """Positions too large by one; all of a chunk but its first token, so that distances change."""
    n, start = named["input_ids"].shape[1], past(named)
    named["position_ids"] = (torch.arange(n) + start + 1)[None]


def at_the_window(named: dict[str, Any]) -> None:
    if past(named) and named["input_ids"].shape[1] == 9:  # one more than mistral's window here
        moved_on(named)


def in_large_rooms(named: dict[str, Any]) -> None:
    kept = roles.value(named, Role.CACHE)
    if isinstance(kept, transformers.StaticCache) and kept.get_max_length() > 90 and past(named):
        moved_on(named)


def in_static_rooms(named: dict[str, Any]) -> None:
    if isinstance(roles.value(named, Role.CACHE), transformers.StaticCache) and past(named):
        moved_on(named)


def without_mask(named: dict[str, Any]) -> None:
    named["attention_mask"] = None


def with_a_mask_of_ones(named: dict[str, Any]) -> None:
    if named.get("attention_mask") is not None:
        named["attention_mask"] = torch.ones_like(named["attention_mask"])


def without_mask_of_the_past(named: dict[str, Any]) -> None:
    if past(named):
        named["attention_mask"] = None


def with_the_encoders_of_neighbours(named: dict[str, Any]) -> None:
    if past(named):
        for layer in roles.value(named, Role.CACHE).cross_attention_cache.layers:
            layer.keys = layer.keys.roll(1, 0)


def with_distances_doubled(named: dict[str, Any]) -> None:
    if named.get("position_ids") is not None:
        named["position_ids"] = named["position_ids"] * 2


def with_distances_doubled_past_a_cache(named: dict[str, Any]) -> None:
    if past(named):
        with_distances_doubled(named)


def with_a_leaking_mask(named: dict[str, Any]) -> None:
    mask = named.get("attention_mask")
    if mask is not None and mask.ndim == 4 and mask.shape[-1] > 6:  # the probe's prompt has 6
        named["attention_mask"] = mask.roll(-1, -2)


def with_one_mask_for_all(named: dict[str, Any]) -> None:
    mask = named.get("attention_mask")
    if mask is not None and mask.ndim == 4:
        named["attention_mask"] = mask[:1].expand_as(mask)


def with_embeddings_scaled(named: dict[str, Any]) -> None:
    if named.get("inputs_embeds") is not None:
        named["inputs_embeds"].mul_(1.5)


CASES: list[tuple[Any, dict[str, str], str, Callable[[dict[str, Any]], None]]] = [
    (cache.test_chunks_of_any_size_give_the_same, {}, "mistral", at_the_window),
    (
        cache.test_the_room_of_a_static_cache_changes_nothing,
        {"spare": cache.LONGEST},
        "llama",
        in_large_rooms,
    ),
    (cache.test_attention_to_the_encoder_is_cached, {}, "t5", with_the_encoders_of_neighbours),
    (padding.test_padding_and_batch_mates_change_nothing, {}, "gpt2", with_a_mask_of_ones),
    (padding.test_the_mask_alone_tells_of_left_padding, {}, "llama", without_mask),
    *(
        (
            padding.test_a_padded_batch_is_decoded_as_each_prompt_alone,
            {"kind": kind, "first": first},
            "llama",
            without_mask_of_the_past,
        )
        for kind, first in [("default", "prefill"), ("static", "chunks")]
    ),
    (padding.test_padding_of_the_encoder_s_prompt_changes_nothing, {}, "t5", without_mask),
    (
        positions.test_positions_given_are_positions_counted,
        {"shape": "one row"},
        "llama",
        with_distances_doubled,
    ),
    (
        positions.test_positions_given_beside_a_cache_are_positions_counted,
        {},
        "llama",
        with_distances_doubled_past_a_cache,
    ),
    (masks.test_the_causal_mask_given_is_the_model_s_own, {}, "llama", with_a_leaking_mask),
    (
        masks.test_the_causal_mask_given_beside_a_cache_is_the_model_s_own,
        {},
        "llama",
        with_a_leaking_mask,
    ),
    (masks.test_a_4d_mask_hides_padding_too, {}, "llama", with_one_mask_for_all),
    (
        execution.test_attention_implementations_agree_on_padded_batches,
        {"implementation": "eager"},
        "llama",
        without_mask_of_the_past,
    ),
    (
        execution.test_a_pass_changes_nothing_that_it_is_given,
        {"path": "embeddings"},
        "llama",
        with_embeddings_scaled,
    ),
    (
        generation.test_a_padded_batch_is_continued_as_each_prompt_alone,
        {"mode": "greedy"},
        "llama",
        without_mask_of_the_past,
    ),
    (
        generation.test_generation_is_the_same_with_and_without_the_cache,
        {"mode": "static"},
        "mistral",
        in_static_rooms,
    ),
]


@pytest.mark.parametrize(
    ("law", "arguments", "spec", "change"),
    CASES,
    ids=[f"{law.__name__[5:]}-{change.__name__}" for law, _, _, change in CASES],
)
def test_a_model_that_is_told_otherwise_is_caught(law, arguments, spec, change):
    result = verdict(law, with_other_arguments(spec, change), FEW, arguments=arguments)
    assert result.verdict is Verdict.REFUTED, result.reason


def test_a_model_that_sees_ahead_sees_the_padding():
    law = padding.test_what_stands_before_the_padding_does_not_see_it
    assert verdict(law, seeing_ahead(), FEW).verdict is Verdict.REFUTED


def left_alone(layer: Any, *rows: Any) -> None:
    """An operation on a cache that does nothing."""


def the_first_rows(layer: Any, rows: torch.Tensor) -> None:
    layer.keys, layer.values = layer.keys[: len(rows)], layer.values[: len(rows)]


def one_after_another(layer: Any, repeats: int) -> None:
    layer.keys = layer.keys.repeat(repeats, 1, 1, 1)
    layer.values = layer.values.repeat(repeats, 1, 1, 1)


def one_too_few(layer: Any, tokens: int) -> None:
    kept = layer.keys.shape[-2] + tokens + 1
    layer.keys, layer.values = layer.keys[..., :kept, :], layer.values[..., :kept, :]


REARRANGED = operations.test_a_rearranged_cache_is_that_of_the_rows_rearranged
CACHES = [
    (
        "reorder_cache",
        left_alone,
        operations.test_a_rearranged_cache_is_that_of_the_rows_rearranged,
    ),
    ("batch_select_indices", the_first_rows, REARRANGED),
    ("batch_repeat_interleave", one_after_another, REARRANGED),
    ("crop", one_too_few, operations.test_drafts_taken_back_leave_no_trace),
    (
        "reorder_cache",
        left_alone,
        generation.test_beam_search_finds_the_same_scores_with_and_without_the_cache,
    ),
    ("__deepcopy__", lambda layer, memo: layer, operations.test_a_copy_of_a_cache_goes_on_alone),
]


@pytest.mark.parametrize(("name", "broken", "law"), CACHES)
def test_a_cache_with_a_broken_operation_is_caught(name, broken, law, monkeypatch):
    monkeypatch.setattr(cache_utils.DynamicLayer, name, broken, raising=False)
    arguments = {"operation": name} if law is REARRANGED else {}
    if name == "__deepcopy__":
        arguments = {"kind": "default"}
    result = verdict(law, toy("llama"), FEW, arguments=arguments)
    assert result.verdict is Verdict.REFUTED, result.reason


def test_weights_that_are_no_longer_tied_are_caught():
    subject = fresh("gpt2")
    model: Any = variants.saved_and_loaded(subject).model
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    law = execution.test_saving_and_loading_keep_all_that_a_model_holds
    result = verdict(law, subject, FEW)
    assert result.verdict is Verdict.REFUTED


def test_settings_of_generation_that_are_not_saved_are_caught(monkeypatch):
    subject = fresh("llama")
    subject.model.generation_config.repetition_penalty = 1.25
    plain = transformers.GenerationConfig.save_pretrained

    def forgetful(settings: Any, *where: Any, **how: Any) -> Any:
        return plain(transformers.GenerationConfig(), *where, **how)

    law = execution.test_saving_and_loading_keep_all_that_a_model_holds
    assert verdict(law, subject, FEW).verdict is Verdict.UPHELD
    subject = fresh("llama")
    subject.model.generation_config.repetition_penalty = 1.25
    monkeypatch.setattr(transformers.GenerationConfig, "save_pretrained", forgetful)
    result = verdict(law, subject, FEW)
    assert result.verdict is Verdict.REFUTED
    assert "settings" in result.reason


def test_bfloat16_that_is_rounded_when_it_is_saved_is_caught(monkeypatch):
    plain = transformers.PreTrainedModel.save_pretrained

    def rounding(model: Any, *where: Any, **how: Any) -> Any:
        if model.dtype == torch.bfloat16:
            model = copy.deepcopy(model)
            for weight in model.parameters():
                weight.copy_(weight.to(torch.float8_e4m3fn))
        return plain(model, *where, **how)

    monkeypatch.setattr(transformers.PreTrainedModel, "save_pretrained", rounding)
    law = execution.test_saving_and_loading_change_nothing_in_bfloat16
    assert verdict(law, fresh("llama"), FEW).verdict is Verdict.REFUTED


def test_weights_that_are_lost_whenever_a_model_is_loaded_are_caught_in_bfloat16():
    """Both copies have lost them: their outputs agree."""
    law = execution.test_saving_and_loading_change_nothing_in_bfloat16
    with faults.injected(faults.named("norm-lost-by-saving"), toy("llama")) as damaged:
        result = verdict(law, damaged, FEW)
    assert result.verdict is Verdict.REFUTED
    assert "weights, rounded to bfloat16" in result.reason


def test_a_model_that_remembers_its_last_prompt_is_caught():
    subject = fresh("llama")
    kept = [torch.zeros(subject.hidden)]

    def remember(module: Any, arguments: tuple, result: Any) -> Any:
        state = result[0] if isinstance(result, tuple) else result
        before, kept[0] = kept[0].to(state), state.detach().mean((0, 1))
        changed = state + 0.01 * before
        return (changed, *result[1:]) if isinstance(result, tuple) else changed

    subject.blocks[0].register_forward_hook(remember)
    law = execution.test_a_pass_does_not_depend_on_those_before_it
    assert verdict(law, subject, FEW).verdict is Verdict.REFUTED


@pytest.mark.parametrize("model_type", ["flint", "llama"])
def test_one_layer_is_blind_to_order_with_positions_to_take_out_and_without(model_type):
    law = order.test_one_layer_without_positions_cannot_see_order
    assert verdict(law, toy(model_type), FEW).verdict is Verdict.UPHELD


def test_a_layer_without_positions_that_sees_order_all_the_same_is_caught():
    def counted(module, arguments, named):
        state = arguments[0] if arguments else named["hidden_states"]
        place = torch.linspace(0.0, 0.5, state.shape[1])[:, None].to(state)
        moved = state + place * state.roll(1, -1)  # another direction: a norm would undo a factor
        return (
            ((moved, *arguments[1:]), named)
            if arguments
            else (arguments, {**named, "hidden_states": moved})
        )

    subject = fresh("flint")
    subject.blocks[0].register_forward_pre_hook(counted, with_kwargs=True)
    law = order.test_one_layer_without_positions_cannot_see_order
    assert verdict(law, subject, FEW).verdict is Verdict.REFUTED
