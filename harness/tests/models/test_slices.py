"""Slices of a model: what they hold, what they share, and what is examined whole."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from assay.harness import faults
from assay.harness.models import capabilities
from assay.harness.models.reference import float64
from assay.harness.models.reference.slices import slice_of
from assay.harness.models.subject import encoders
from assay.harness.results.errors import Missing
from assay.harness.tests.support.deep_models import deep
from assay.harness.tests.support.nightly import nightly
from assay.harness.tests.support.toys import changed, toy

TOKENS = 51

TYPES = {
    "llama": 2,
    "qwen2": 2,
    "mixtral": 2,
    "gemma3_text": 2,
    "qwen3_next": 2,
    "jamba": 2,
    "bamba": 4,  # an attention layer among the recurrent ones is the last
    "modernbert": 3,  # its first block has no norm
    "bert": 2,
    "gpt2": 2,
    "t5": 2,
    "bart": 2,
    "t5gemma": 2,
    "switch_transformers": 3,  # its third block is sparse
}
"""How many of four blocks hold every kind."""


IN_THE_GATE = ("llama", "bamba", "modernbert", "t5", "switch_transformers")


@pytest.mark.parametrize("model_type", [t if t in IN_THE_GATE else nightly(t) for t in TYPES])
def test_a_slice_computes_what_the_model_does_up_to_its_depth(model_type):
    whole = deep(model_type)
    part = slice_of(whole, TOKENS)
    own = part.subject
    assert whole.layers == 4
    assert (own.layers, len(own.blocks), own.vocabulary) == (TYPES[model_type],) * 2 + (TOKENS,)
    ids = own.content(torch.arange(3, 20)[None])
    beside = encoders.beside(own, ids)  # both decoders read the slice's encoder
    expected = whole.block_output(own.layers, part.ids[ids], **beside)
    observed = own.block_output(own.layers, ids, **beside)
    torch.testing.assert_close(observed, expected, rtol=0, atol=0)
    assert own.rows(ids)["logits"].shape[-1] == TOKENS


@pytest.mark.parametrize("model_type", ["t5", "bart", "t5gemma"])
def test_both_stacks_of_an_encoder_decoder_are_cut(model_type):
    whole = deep(model_type)
    stacks = whole.model.get_encoder(), slice_of(whole, TOKENS).subject.model.get_encoder()
    lists = [next(m for m in each.modules() if isinstance(m, nn.ModuleList)) for each in stacks]
    assert [*map(len, lists)] == [4, 2]


def test_an_encoder_that_computes_something_else_makes_no_slice():
    whole = deep("t5")  # another class of activation makes its second block one of a kind
    whole.model.encoder.block[1].layer[1].DenseReluDense.act = nn.GELU().eval()
    with pytest.raises(Missing, match="the output of block 3 of the encoder of its slice differs"):
        slice_of(whole, TOKENS)


def test_a_slice_of_an_odd_vocabulary_has_an_odd_one():
    assert slice_of(deep("llama"), 50).subject.vocabulary == 49


def test_special_ids_are_kept_and_renumbered():
    whole = deep("llama")
    last = whole.vocabulary - 1
    whole.model.config.eos_token_id = whole.model.generation_config.eos_token_id = [last, 7]
    part = slice_of(whole, TOKENS)
    assert part.ids[-1] == last
    assert part.subject.config.eos_token_id == [TOKENS - 1, 7]
    assert part.subject.model.generation_config.eos_token_id == [TOKENS - 1, 7]
    assert whole.config.eos_token_id == [last, 7]
    assert str(part) == f"the first 2 of 4 blocks and {TOKENS} of {last + 1} tokens"


@pytest.mark.parametrize("blocks", [1, 3])
def test_a_slice_has_as_many_blocks_as_it_is_asked_for(blocks):
    whole = deep("llama")
    own, ids = slice_of(whole, whole.vocabulary, blocks).subject, torch.arange(3, 20)[None]
    assert (own.layers, own.vocabulary) == (blocks, whole.vocabulary)
    expected = whole.block_output(blocks, ids)
    torch.testing.assert_close(own.block_output(blocks, ids), expected, rtol=0, atol=0)
    assert not torch.equal(whole.block_output(2, ids), expected)


def test_a_layer_of_another_kind_is_in_the_slice():
    whole = deep("qwen3_next")
    kinds = ["linear_attention"] * 3 + ["full_attention"]
    assert whole.config.layer_types[:2] == kinds[2:]
    whole = deep("qwen3_next", layer_types=kinds)
    assert slice_of(whole, TOKENS).subject.layers == 4


def _hooked():
    return changed("llama", lambda state: state * 1.5)


def _scaled():
    whole = deep("llama")
    whole.blocks[0].self_attn.scaling *= 2
    return whole


def _of_another_activation():
    whole = deep("llama")
    whole.blocks[1].mlp.act_fn = nn.GELU().eval()
    return whole


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (lambda: deep("albert"), "1 blocks serve as its 4"),
        (lambda: toy("gemma3n_text"), "its blocks share keys and values"),
        (lambda: toy("llama"), "it takes all blocks to hold every kind"),
        (_hooked, "model.layers.0 is patched"),
        (_scaled, "scaling of model.layers.0.self_attn is"),
        (_of_another_activation, "the output of block 2 of its slice differs by"),
    ],
)
def test_a_model_that_cannot_be_sliced_is_examined_whole(build, why):
    with pytest.raises(Missing, match=f"^examined whole: {why}"):
        slice_of(build(), tokens=1000)


def test_a_fault_in_the_last_block_is_not_in_the_slice_and_says_so():
    """Its code would put it into the slice's last block, which is another."""
    whole = deep("llama")
    with (
        faults.injected(faults.named("future-seen-in-one-layer"), whole) as faulty,
        pytest.raises(Missing, match="the output of block 2 of its slice differs"),
    ):
        slice_of(faulty, TOKENS)


def test_the_reference_of_a_slice_has_weights_of_its_own(monkeypatch):
    """Gradients are compared with those of its parameters."""
    monkeypatch.setattr(float64, "LARGE", 0)
    subject = deep("llama")
    part = slice_of(subject, TOKENS).subject
    assert [float64.streams(each) for each in (subject, part)] == [True, False]
    able = ["parameter-gradients" in capabilities.probe(each) for each in (subject, part)]
    assert able == [False, True]
