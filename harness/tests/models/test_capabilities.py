"""What the models of every type can do, and what they say where they cannot."""

from __future__ import annotations

import subprocess
import sys
from itertools import groupby

import pytest
import torch

from assay.harness.models import capabilities
from assay.harness.models.capabilities import Missing, designs, probe, recorded
from assay.harness.models.capabilities.probing import PROBE
from assay.harness.models.capabilities.registry import PROBES
from assay.harness.models.subject import masks, roles
from assay.harness.models.subject.roles import Role
from assay.harness.tests.support.toys import (
    CAUSAL,
    ENCODERS,
    TYPES,
    changed,
    fresh,
    seeing_ahead,
    toy,
)

ATTENTIVE = {*CAUSAL, "t5"} - {"mamba"}
HAVE = {
    "causal": {*CAUSAL, "t5"},
    "bidirectional": {*ENCODERS},
    "learned-positions": {"gpt2", "gpt_neo", "opt", "bert", "roberta", "distilbert", "albert"},
    "position-ids": {*TYPES} - {"bloom", "mamba", "t5"},
    # gpt_neo multiplies in a causal mask of its own.
    "mask-4d": {*TYPES} - {"gpt_neo", "bloom", "mamba"},
    "kv-cache": ATTENTIVE,
    "chunks-beside-cache": {*CAUSAL, "t5"},
    "recurrent-state": {"mamba"},
    "relative-positions": {
        *("gpt_neox", "llama", "mistral", "gemma2", "qwen2", "mixtral", "modernbert")
    },
    "order-blind": {*TYPES} - {"bloom", "mamba", "t5"},
    "tied-head": {*TYPES} - {"gpt_neox", "llama", "mistral", "qwen2", "mixtral"},
    "lm-head": {*TYPES},
    "inputs-embeds": {*TYPES},
    "padding": {*TYPES},
    "blocks": {*TYPES},
    "generation": {*CAUSAL, "t5"},
    "trained": set(),
    "tokenizer": set(),
}
"""Capability → the model types that have it, by what their papers and code say."""


@pytest.mark.parametrize("model_type", TYPES)
def test_every_type_has_the_capabilities_that_it_is_known_for(model_type):
    names = {name for name in HAVE if name in probe(toy(model_type))}
    assert names == {name for name, types in HAVE.items() if model_type in types}


@pytest.mark.parametrize("model_type", ["llama", "mamba", "bert", "t5"])
def test_whatever_is_missing_has_a_reason_of_one_line(model_type):
    reasons = recorded.reasons(toy(model_type))
    assert list(reasons) == capabilities.names()
    for name, why in reasons.items():
        if why is not None:
            assert 10 < len(why) < 200, name
            assert "\n" not in why, name


def test_they_are_listed_topic_by_topic_and_only_what_is_asked_for_is_imported():
    code = """
import sys
from assay.harness.models.capabilities import names, registry
assert not [name for name in sys.modules if "capabilities.parts" in name]
probes = [registry._probe(name) for name in names()]
assert list(registry.PROBES) == names()
print(*(probe.__module__.rpartition(".")[2] for probe in probes))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    topics = [topic for topic, _ in groupby(done.stdout.split())]
    assert topics == sorted(set(topics))


def test_a_causal_model_that_sees_the_future_is_still_causal():
    broken = probe(seeing_ahead())
    assert "causal" in broken
    assert str(broken.why_missing("bidirectional")).startswith("the model is causal: ")


def test_a_model_that_says_it_is_not_causal_is_not():
    subject = fresh("llama")
    subject.config.is_causal = False
    assert "is_causal = False" in probe(subject).why_missing("causal")


def test_positions_that_are_taken_but_not_used_are_no_capability():
    """Its last states are replaced by ones that no position reaches."""
    deaf = changed("llama", torch.ones_like, block=-1)
    assert "does not use them" in probe(deaf).why_missing("position-ids")


def test_positions_are_taken_whatever_comes_of_a_mask():
    """The one takes 2-D masks only; the other breaks on the positions themselves."""
    model_capabilities = probe(toy("openai-gpt"))
    assert {"position-ids", "positions-alone", "left-padding"} <= {
        name for name, why in recorded.reasons(model_capabilities.subject).items() if why is None
    }
    assert "mask-4d" not in model_capabilities
    said = probe(toy("tiny:causal:reformer")).why_missing("position-ids")
    assert str(said).startswith("the model does not take given positions: ")


def test_positions_that_restart_are_packed_sequences_where_the_mask_follows_them():
    assert "packed-positions" in probe(toy("gpt2"))
    assert "positions that restart do not change the mask" in probe(deaf_to_packing()).why_missing(
        "packed-positions"
    )
    assert "packed-positions" not in probe(toy("bert"))


def deaf_to_packing():
    """A model that is always given its causal mask."""
    subject = fresh("llama")

    def mask_it(module, arguments, named):
        if named.get("attention_mask") is None:
            n = named["input_ids"].shape[1]
            named["attention_mask"] = masks.causal(n, subject.dtype, subject.device)
        return arguments, named

    subject.model.register_forward_pre_hook(mask_it, with_kwargs=True)
    return subject


def refusing_chunks(error: Exception):
    """A model that raises ``error`` where more than one token goes beside a filled cache."""
    subject = fresh("llama")

    def refuse(module, arguments, named):
        cache = roles.value(named, Role.CACHE)
        if cache is not None and cache.get_seq_length() and named["input_ids"].shape[1] > 1:
            raise error

    subject.model.register_forward_pre_hook(refuse, with_kwargs=True)
    return subject


def test_a_model_is_believed_that_it_takes_one_token_beside_a_cache():
    refusing = probe(refusing_chunks(AssertionError("tokens come one at a time")))
    assert "tokens come one at a time" in refusing.why_missing("chunks-beside-cache")
    assert "chunks-beside-cache" not in probe(toy("tiny:causal:prophetnet"))


def test_a_model_that_breaks_on_chunks_is_not_taken_for_one_that_refuses_them():
    broken = probe(refusing_chunks(RuntimeError("sizes must match")))
    assert "chunks-beside-cache" in broken


def test_absolute_positions_are_found_where_long_prompts_are_padded_by_the_model():
    model_capabilities = probe(toy("tiny:causal:reformer"))
    assert "absolute-positions" in model_capabilities
    assert "positions are absolute" in str(model_capabilities.why_missing("left-padding"))


def test_an_embedding_with_a_repeated_column_has_not_full_rank():
    subject = fresh("llama")
    assert "full-rank-embedding" in probe(toy("llama"))
    subject.embedding_table[:, 1] = subject.embedding_table[:, 0]
    assert "linearly dependent" in probe(subject).why_missing("full-rank-embedding")


def test_a_name_that_is_no_capability_is_an_error():
    with pytest.raises(KeyError):
        probe(toy("gpt2")).why_missing("telepathy")


def test_a_claim_can_require_what_turns_out_to_be_needed():
    capabilities.require(toy("gpt2"), "learned-positions")
    with pytest.raises(Missing, match=r"^learned-positions: no embedding"):
        capabilities.require(toy("llama"), "learned-positions")


def test_a_capability_is_probed_once(monkeypatch):
    subjects = []
    monkeypatch.setitem(PROBES, "counted", subjects.append)
    subject = fresh("gpt2")
    assert all("counted" in probe(subject) for _ in range(3))
    assert subjects == [subject]


@pytest.mark.parametrize("model_type", ["mpnet", "t5"])
def test_positions_are_not_alone_where_a_table_counts_besides(model_type):
    model_capabilities = probe(toy(model_type))
    assert "positions-alone" not in model_capabilities
    assert "order-blind" not in model_capabilities
    if model_type == "mpnet":  # which takes position_ids, and has a bias by distance as well
        assert "position-ids" in model_capabilities
        said = "position embeddings are looked up by index and ignore position_ids"
        assert model_capabilities.why_missing("positions-alone") == said


def test_embeddings_made_of_neighbours_are_not_blind_to_order():
    model_capabilities = probe(toy("mobilebert"))
    assert "positions-alone" in model_capabilities
    said = "what goes into the first block is made of several tokens"
    assert model_capabilities.why_missing("order-blind") == said


def test_positions_that_are_wider_than_embeddings_are_not_added_to_them():
    assert "added-positions" in probe(toy("gpt2"))
    assert "added-positions" not in probe(toy("llama"))
    assert probe(toy("mobilebert")).why_missing("added-positions") == (
        "a position is 32 wide, an embedding 16"
    )


def test_a_model_may_cache_when_it_generates_and_give_no_cache_back():
    model_capabilities = probe(toy("recurrent_gemma"))
    assert "cached-generation" in model_capabilities
    assert model_capabilities.why_missing("cache") == (
        "the model's forward returns a cache only if it is given one"
    )
    assert "cached-generation" not in probe(toy("bert"))


def test_a_model_may_want_its_whole_prompt_beside_a_cache(monkeypatch):
    monkeypatch.setattr(designs, "why_not", lambda subject, name: None)
    subject = fresh("cpmant")
    assert probe(subject).why_missing("cache") == (
        "with a cache the model requires the whole prompt, not only the new tokens"
    )
    assert "cached-generation" in probe(subject)
    assert "cache" in probe(toy("rwkv"))  # which breaks on its cache


def test_a_state_beside_the_layers_of_a_cache_is_a_recurrence():
    model_capabilities = probe(toy("minimax"))
    assert {"kv-cache", "recurrence"} <= {
        name for name, why in recorded.reasons(model_capabilities.subject).items() if why is None
    }
    assert "attention-only" not in model_capabilities
    assert "recurrence" not in probe(toy("llama"))


def test_attention_alone_is_told_by_what_goes_into_a_model_and_not_by_a_list_of_its_blocks():
    model_capabilities = probe(toy("hrm_text"))  # runs its few blocks over and over
    assert "no list of" in str(model_capabilities.why_missing("blocks"))
    assert "attention-only" in model_capabilities
    streams = str(probe(toy("hy_v4")).why_missing("attention-only"))
    assert streams.startswith("block 0 gives [1, 6, 4, 32]")


@pytest.mark.parametrize(
    ("spec", "name", "said"),
    [
        ("tiny:masked:esmc", "inputs-embeds", "the model's forward has no inputs_embeds"),
        ("deepseek_v4", "inputs-embeds", "in place of ids: AttributeError: 'NoneType'"),
        ("blt", "inputs-embeds", "in place of ids: input_ids is required for entropy-based"),
        ("xlnet", "cached-generation", "takes its past as 'mems', of a type of its own"),
        ("openai-gpt", "cached-generation", "the model's forward takes no cache"),
    ],
)
def test_what_is_missing_says_whether_it_is_not_there_refused_or_broken(spec, name, said):
    assert said in str(probe(toy(spec)).why_missing(name))


def test_a_mask_is_tried_on_a_prompt_within_the_window():
    """Beyond it a model's own mask hides what a full one shows, and neither is wrong."""
    assert toy("modernbert").window < PROBE
    assert "mask-4d" in probe(toy("modernbert"))
    assert "does not read a 4-D mask" in str(probe(toy("t5gemma2")).why_missing("mask-4d"))
