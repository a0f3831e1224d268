"""The one interface to any model: what it runs, what it gives back, what it leaves alone."""

from __future__ import annotations

import functools
from contextlib import suppress

import pytest
import torch
from transformers import LlamaForCausalLM

from assay.fixtures import families
from assay.harness.models.capabilities import recorded
from assay.harness.models.reference.float64 import reference_of
from assay.harness.models.subject import Subject, compat
from assay.harness.models.subject.settings import SubjectSettings
from assay.harness.tests.support.toys import counted, fresh, prompt, toy

BLOCKS = ("gpt2", "llama", "gpt_neox", "opt", "bloom", "mamba", "bert", "albert", "t5")
"""Pre-norm and post-norm, tuples and tensors, a recurrence, a shared block, a decoder."""


def hooks_of(model: torch.nn.Module) -> int:
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")
    return sum(len(getattr(module, kind)) for module in model.modules() for kind in kinds)


@pytest.mark.parametrize("model_type", BLOCKS)
def test_blocks_beyond_the_depth_do_not_run(model_type):
    subject = toy(model_type)
    subject.block_output(0, prompt(subject))  # finds out how the model is called
    for depth in range(subject.layers + 1):
        with counted(subject.blocks) as ran:
            output = subject.block_output(depth, prompt(subject))
        shared = len(subject.blocks) < subject.layers
        # The deepest block is left by a hook that comes before the counting one.
        assert [*ran] == ([0] * depth if shared else list(range(depth)))
        assert output.shape == (2, 9, subject.config.hidden_size)


@pytest.mark.parametrize("depth", [-1, 3])
def test_a_depth_that_the_model_has_not_is_refused(depth):
    subject = toy("llama")
    with pytest.raises(ValueError, match=f"has 2 blocks, not {depth}"):
        subject.block_output(depth, prompt(subject))


@pytest.mark.parametrize("model_type", ["llama", "mixtral", "albert"])
def test_no_hooks_are_left_behind_not_even_by_a_refusal(model_type):
    subject = fresh(model_type)
    ids = prompt(subject)
    subject.rows(ids)  # transformers installs its own at the first call
    before = hooks_of(subject.model)
    subject.block_output(1, ids)
    with pytest.raises(IndexError):
        subject.block_output(1, ids + subject.vocabulary)
    with pytest.raises(IndexError):
        subject.rows(ids + subject.vocabulary)
    assert hooks_of(subject.model) == before


def test_gradients_reach_embeddings_that_ask_for_them_and_nothing_else():
    subject = fresh("llama")
    embeddings = subject.model.get_input_embeddings()(prompt(subject)).detach()
    assert not subject.block_output(1, embeddings=embeddings).requires_grad
    embeddings.requires_grad_()
    subject.block_output(2, embeddings=embeddings).sum().backward()
    assert embeddings.grad is not None
    assert float(embeddings.grad.abs().min(-1).values.max()) > 0
    assert all(parameter.grad is None for parameter in subject.model.parameters())


@pytest.mark.parametrize("model_type", ["gpt2", "mixtral", "t5"])
def test_the_reference_is_the_same_model_in_float64(model_type):
    subject = toy(model_type)
    reference = reference_of(subject)
    theirs = dict(reference.model.named_parameters())
    assert reference.dtype == torch.float64
    assert reference is reference_of(subject)
    for name, parameter in subject.model.named_parameters():
        assert theirs[name].dtype == torch.float64
        assert torch.equal(theirs[name], parameter.double())
    assert reference_of(reference) is reference


def test_a_reference_draws_the_numbers_that_its_model_draws():
    subject = fresh("reformer")  # hashes long prompts by random rotations, from a seed of its own
    ids = prompt(subject, 32)
    assert reference_of(subject).settings.drawn_as is torch.float32
    plain, exact = subject.rows(ids)["logits"], reference_of(subject).rows(ids)["logits"]
    assert exact.dtype == torch.float64
    assert torch.allclose(plain.double(), exact, atol=1e-4)
    reference_of(subject).settings = SubjectSettings()
    assert not torch.allclose(reference_of(subject).rows(ids)["logits"], exact, atol=1e-2)


@pytest.mark.parametrize("model_type", ["gpt2", "roberta", "t5"])
def test_content_is_in_the_vocabulary_and_never_padding(model_type):
    subject = toy(model_type)
    ids = subject.content(torch.arange(-5, 3 * subject.vocabulary))
    assert 0 <= int(ids.min()) <= int(ids.max()) < subject.vocabulary
    assert subject.config.pad_token_id not in ids.tolist()


def test_content_is_what_the_head_has_logits_for():
    subject = toy("mllama")  # its embedding has eight rows more, for images
    ids = subject.content(torch.arange(subject.vocabulary))
    assert subject.vocabulary == 109
    assert int(ids.max()) < 101


def test_content_leaves_other_ids_alone_and_moves_padding_by_one():
    subject = fresh("gpt2")
    subject.config.pad_token_id = subject.vocabulary - 1
    assert subject.content(torch.tensor([3, subject.vocabulary - 1])).tolist() == [3, 0]
    subject.config.pad_token_id = None
    assert subject.content(torch.arange(4)).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("model_type", "context"),
    [("gpt2", 64), ("opt", 64), ("roberta", 64), ("llama", 64), ("bloom", None), ("t5", None)],
)
def test_the_context_is_what_the_positions_leave(model_type, context):
    assert toy(model_type).context == context


@pytest.mark.parametrize("model_type", ["gpt2", "opt", "roberta", "bert"])
def test_a_table_of_positions_takes_the_whole_context_and_not_a_token_more(model_type):
    subject = toy(model_type)
    assert subject.rows(prompt(subject, subject.context))["logits"].shape[1] == subject.context
    with pytest.raises((IndexError, RuntimeError)):
        subject.rows(prompt(subject, subject.context + 1))


@pytest.mark.parametrize(
    ("model_type", "window"), [("mistral", 8), ("gemma2", 8), ("gpt_neo", 8), ("llama", None)]
)
def test_the_window_is_the_smallest_of_any_layer(model_type, window):
    assert toy(model_type).window == window


def test_another_attention_is_put_back_afterwards_whatever_happens():
    subject = fresh("llama")
    usual = subject.attention
    assert usual != "eager"
    with suppress(ZeroDivisionError), subject.attending_by("eager") as same:
        assert (subject.attention, same) == ("eager", subject)
        raise ZeroDivisionError
    assert subject.attention == usual


def test_an_attention_that_is_refused_leaves_the_usual_one():
    subject = fresh("fuyu")  # whose text model has no flex attention, and whose whole says it has
    usual = subject.attention
    with (
        pytest.raises(ValueError, match="does not support"),
        subject.attending_by("flex_attention"),
    ):
        pass
    assert subject.attention == usual
    assert subject.model.config.to_dict() == toy("fuyu").model.config.to_dict()


@pytest.mark.parametrize("spec", ["got_ocr2", "granite_speech", "tiny:seq2seq:vibevoice_asr"])
def test_of_several_models_the_text_s_attention_is_meant_and_all_are_put_back(spec):
    """Their other parts attend in another way, or refuse to be told."""
    subject = fresh(spec)
    assert subject.attention == "sdpa"
    before = compat.settings(subject.model, compat.ATTENTION)
    with subject.attending_by("eager"):
        assert subject.attention == "eager"
    assert [name for _, name in compat.settings(subject.model, compat.ATTENTION)] == [
        n for _, n in before
    ]


def test_tokens_are_words_where_there_is_a_tokenizer_and_numbers_where_there_is_none():
    assert toy("llama").tokens([4, 0]) == ["<4>", "<0>"]
    words = toy("untrained:small").tokens([300, 301])
    assert all(isinstance(word, str) and word for word in words)
    assert words != ["<300>", "<301>"]


def test_a_four_dimensional_mask_leaves_learned_positions_as_they_are():
    """Some models count positions from the mask that they are given."""
    from assay.harness.models.subject import masks

    for model_type in ("opt", "gpt2", "bert"):
        subject = toy(model_type)
        ids = prompt(subject)
        mask = (masks.full if model_type == "bert" else masks.causal)(9, torch.float32)
        usual, masked = subject.rows(ids)["logits"], subject.rows(ids, mask=mask)["logits"]
        assert torch.allclose(usual, masked, atol=1e-4), model_type


@pytest.mark.parametrize("model_type", ["encoder-decoder", "t5gemma", "fsmt"])
def test_of_an_encoder_decoder_with_two_tables_the_decoder_s_is_examined(model_type):
    subject = fresh(model_type)
    ids = prompt(subject, 5)
    encoders = subject.model.get_input_embeddings()
    table = subject.input_embeddings
    assert table is not encoders
    before = subject.rows(ids)["logits"]
    with torch.no_grad():
        encoders.weight.add_(1.0)
    assert torch.equal(subject.rows(ids)["logits"], before)  # it was read once
    with torch.no_grad():
        table.weight.add_(torch.randn_like(table.weight))
    assert not torch.allclose(subject.rows(ids)["logits"], before, atol=1e-2)


def test_the_decoder_s_table_is_found_where_a_cache_leaves_the_last_id_only():
    subject = fresh("fsmt")  # whose decoder did so until transformers 5.17

    def keep_the_last(module, args, kwargs):
        return ((args[0][:, -1:], *args[1:]) if kwargs["use_cache"] else args), kwargs

    decoder = subject.model.get_decoder()
    hook = decoder.register_forward_pre_hook(keep_the_last, with_kwargs=True)
    assert subject.input_embeddings is decoder.embed_tokens
    hook.remove()


def test_positions_of_an_encoder_decoder_are_its_decoder_s():
    subject = toy("t5gemma2")
    assert subject.positions_argument == "decoder_position_ids"
    ids = prompt(subject, 5)
    plain = subject.rows(ids)["logits"]
    usual = subject.rows(ids, positions=torch.arange(5))["logits"]
    assert torch.allclose(usual, plain, atol=1e-5)
    other = subject.rows(ids, positions=torch.tensor([4, 0, 3, 1, 9]))["logits"]
    assert not torch.allclose(other, plain, atol=1e-2)
    assert toy("t5").positions_argument is None
    # These take whatever else is given, and pass it on to a part that reads it, or do not.
    assert toy("tiny:seq2seq:encoder-decoder").positions_argument == "decoder_position_ids"
    assert toy("tiny:causal:whisper").positions_argument == "position_ids"
    assert toy("tiny:seq2seq:bart").positions_argument is None
    assert toy("llama").positions_argument == "position_ids"


def test_the_dtype_is_the_text_s_whatever_a_tower_beside_it_is_kept_in():
    subject = toy("nemo_speechlm", "bfloat16")
    assert subject.model.dtype == torch.float32  # of its first parameter, in a tower for sound
    assert subject.dtype == torch.bfloat16
    assert toy("llama").dtype == torch.float32
    assert toy("llama", "bfloat16").dtype == torch.bfloat16


def test_looking_for_the_decoder_s_embeddings_leaves_the_encoder_as_it_is():
    subject = fresh("bigbird_pegasus")  # whose encoder stays with full attention after a short one
    assert subject.input_embeddings is subject.model.get_input_embeddings()
    assert subject.model.get_encoder().attention_type == "block_sparse"


class Handing(LlamaForCausalLM):
    """Hands on whatever it is given."""

    def forward(self, *args, **kwargs):
        return super().forward(*args, **kwargs)


def wrapped(model):
    """A model whose forward is one that a decorator has made of it."""
    forward = model.forward

    @functools.wraps(forward)
    def handing(*args, **kwargs):
        return forward(*args, **kwargs)

    model.forward = handing
    return model


def _had(subject):
    return {name for name, why in recorded.reasons(subject).items() if why is None}


def test_a_forward_that_hands_all_on_takes_what_is_taken_where_it_ends():
    config = families.tiny("llama").config
    plain = Subject("plain", LlamaForCausalLM(config).eval())
    for model in (Handing(config).eval(), wrapped(LlamaForCausalLM(config).eval())):
        subject = Subject("handing", model)
        assert subject.cache_argument == plain.cache_argument
        assert subject.positions_argument == "position_ids"
        assert _had(subject) == _had(plain)
