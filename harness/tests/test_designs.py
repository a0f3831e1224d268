"""What models are not meant to do: by type and configuration, and never by running them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from claims import test_cache, test_positions
from harness import caches, capabilities
from harness.capabilities import designs
from harness.tests.toys import fresh, prompt, toy, verdict
from harness.verdicts import Verdict

OF_TYPES = {
    "gemma3n_text": "embeddings-alone",
    "beam": "relative-positions",
    "hunyuan_v1_dense": "padding-by-mask",
    "t5gemma2": "relative-positions",
    "recurrent_gemma": "repeatable",
    "deepseek_v4": "steady-cost",
    "longcat_flash": "steady-cost",
    "qwen4_exp_text": "one-row-of-positions",
    "xlm": "one-row-of-positions",
    "flaubert": "one-row-of-positions",
    "cpmant": "causal",
    "blt": "left-padding",
    "causal:reformer": "fixed-sight",
    "rwkv": "padding",
    "fnet": "bfloat16",
}


@pytest.mark.parametrize(("model_type", "name"), OF_TYPES.items())
def test_a_design_takes_its_capabilities_away_and_says_why(model_type, name):
    subject = toy(f"tiny:{model_type}")
    assert capabilities.of(subject).why_missing(name).startswith("by design: ")


@pytest.mark.parametrize("name", sorted({name for d in designs.DESIGNS for name in d.lacks}))
def test_others_are_of_no_design(name):
    for model_type in ("llama", "gpt2", "bert"):
        assert designs.why_not(toy(model_type), name) is None


def test_a_design_is_known_without_running_the_model():
    subject = SimpleNamespace(
        config=SimpleNamespace(model_type="longcat_flash", zero_expert_num=4),
        model=SimpleNamespace(config=SimpleNamespace(model_type="longcat_flash")),
    )
    assert designs.why_not(subject, "steady-cost")
    subject.config.zero_expert_num = 0
    assert designs.why_not(subject, "steady-cost") is None


def test_a_reformer_without_hashes_or_not_a_decoder_is_of_no_design():
    assert designs.why_not(toy("tiny:causal:reformer"), "fixed-sight")
    assert designs.why_not(toy("tiny:reformer"), "fixed-sight") is None


def test_claims_do_not_apply_to_a_design_and_do_to_all_others():
    distance = test_positions.test_a_constant_added_to_all_positions_changes_nothing
    assert verdict(distance, toy("llama")).verdict is Verdict.UPHELD
    assert verdict(distance, toy("hunyuan_v1_dense")).verdict is Verdict.NOT_APPLICABLE
    cost = test_cache.test_a_cached_step_costs_a_straight_line_in_n
    assert verdict(cost, toy("llama")).verdict is Verdict.UPHELD
    assert verdict(cost, toy("longcat_flash")).verdict is Verdict.NOT_APPLICABLE


def test_a_static_cache_has_room_for_the_keys_that_biases_are_made_for():
    subject = fresh("mpt")
    most = subject.config.max_seq_len
    assert caches.make(subject, "static", 1, most + 96).get_max_length() == most
    assert caches.make(toy("llama"), "static", 1, 200).get_max_length() == 200
    decoded = caches.decode(subject, prompt(subject, 9), [4, 5], "static", spare=96)
    assert decoded["logits"].shape[1] == 9


def test_a_prompt_is_no_longer_than_experts_of_limited_room_take():
    assert toy("switch_transformers").context == toy("switch_transformers").config.expert_capacity
