"""What configurations say under their several names, and what is no answer."""

from __future__ import annotations

from types import SimpleNamespace as Config

import pytest

from assay.harness.models.subject import configuration


def test_heads_are_the_most_of_any_layer_and_one_where_nothing_is_said():
    each = [Config(num_attention_heads=4), Config(num_attention_heads=8)]
    assert configuration.heads(Config(num_attention_heads=2)) == 2
    assert configuration.heads(Config(is_heterogeneous=True, per_layer_config=each)) == 8
    assert configuration.heads(Config(num_attention_heads=None)) == 1


@pytest.mark.parametrize(
    ("said", "window"),
    [
        ({"sliding_window": 8}, 8),
        ({"sliding_window": 8, "attention_chunk_size": 5}, 5),
        ({"local_attention": 8}, 5),  # half of it on either side
        ({"sliding_window": None, "window_size": -1}, None),
        ({}, None),
    ],
)
def test_the_window_is_the_smallest_that_is_named(said, window):
    assert configuration.window(Config(**said)) == window


def test_a_limit_below_one_is_none():
    assert configuration.context(Config(max_position_embeddings=64, max_seq_len=32)) == 32
    assert configuration.context(Config(max_position_embeddings=-1)) is None


def test_experts_without_scores_to_ask_for_route_nothing():
    assert configuration.routes(Config(num_experts=4, output_router_logits=False))
    assert not configuration.routes(Config(num_experts=4))
    assert not configuration.routes(Config(num_experts=0, output_router_logits=False))


def test_places_for_other_media_are_found_in_every_part():
    said = {
        "image_token_id": 5,
        "eos_token_id": 2,
        "audio_config": {"boa_token_index": 6},
        "text_config": {"vision_start_token_id": 7, "bos_token_id": 1},
    }
    assert sorted(configuration.placeholders(said)) == [5, 6, 7]
