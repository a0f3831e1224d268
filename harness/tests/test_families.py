"""Tiny models of every family: they are built by seed, and nothing in them hides.

Each check of a property has a model or an input for which it comes out the other way.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy
import pytest
import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from fixtures.families import describe, model_types, shrink, tiny, usual_kind
from fixtures.families.layers import kept_layers
from fixtures.families.named import NAMED
from fixtures.families.sizes import CONTEXT, VOCABULARY, WINDOW, small
from fixtures.families.weights import to_unit_gain
from harness.errors import BadInput

CAUSAL = (
    "gpt2",
    "gpt_neo",
    "gpt_neox",
    "opt",
    "llama",
    "mistral",
    "gemma2",
    "qwen2",
    "bloom",
    "mamba",
    "mixtral",
)
MASKED = ("bert", "roberta", "distilbert", "albert", "modernbert")
TYPES = (*CAUSAL, *MASKED, "t5")
ATTENTIVE = tuple(model_type for model_type in TYPES if model_type != "mamba")


@pytest.fixture(scope="module", params=TYPES)
def model(request: pytest.FixtureRequest) -> PreTrainedModel:
    """One of the tiny models; not to be changed."""
    return tiny(request.param)


def ids(n: int = 24, batch: int = 2) -> Tensor:
    """(batch, n) token ids, none of them special in any type."""
    return torch.randint(5, VOCABULARY - 5, (batch, n), generator=torch.Generator().manual_seed(7))


@torch.no_grad()
def run(model: PreTrainedModel, tokens: Tensor, **options: object) -> object:
    """The model's output; a sequence-to-sequence model decodes its input reversed."""
    if model.config.is_encoder_decoder:
        options["decoder_input_ids"] = ids(tokens.shape[1], tokens.shape[0]).flip(1)
    return model(input_ids=tokens, **options)


def replaced(tokens: Tensor, place: int) -> Tensor:
    """The same ids with another one at ``place``."""
    other = tokens.clone()
    other[:, place] = (other[:, place] - 5 + 17) % (VOCABULARY - 10) + 5
    return other


def effect(model: PreTrainedModel, on: int, of: int, n: int = 24) -> float:
    """Relative change of the logits at ``on`` when the token at ``of`` is another one."""
    before = run(model, ids(n)).logits[:, on]
    after = run(model, replaced(ids(n), of)).logits[:, on]
    return float((after - before).norm() / before.norm())


def attentions(model: PreTrainedModel, tokens: Tensor) -> list[Tensor]:
    """Weights of every self-attention, (batch, heads, n, n) a layer, eager."""
    model.set_attn_implementation("eager")
    out = run(model, tokens, output_attentions=True)
    if model.config.is_encoder_decoder:
        return [*out.encoder_attentions, *out.decoder_attentions]
    return list(out.attentions)


def unevenness(model: PreTrainedModel) -> float:
    """How unevenly the last of 8 equal tokens attends: there, only positions can differ."""
    weights = attentions(model, torch.full((1, 8), 9))[0][0, :, -1]
    return float((weights.amax(-1) - weights.amin(-1)).max())


@pytest.mark.parametrize("model_type", TYPES)
def test_the_same_seed_gives_the_same_weights_and_another_seed_gives_others(model_type):
    first, same, other = (tiny(model_type, seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


@pytest.mark.parametrize("model_type", TYPES)
def test_building_leaves_the_global_random_state_as_it_was(model_type):
    with unchanged_random_states():
        tiny(model_type)


def test_a_draw_from_the_global_generator_would_be_noticed():
    with pytest.raises(AssertionError), unchanged_random_states():
        torch.rand(1)


def test_a_model_comes_in_float32_in_evaluation_mode_on_the_cpu(model):
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert {p.device.type for p in model.parameters()} == {"cpu"}
    assert not any(module.training for module in model.modules())


def test_a_model_is_tiny(model):
    assert model.num_parameters() < 100_000
    assert model.config.vocab_size == VOCABULARY


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_logits_are_finite_in_every_floating_type(model, dtype):
    logits = run(tiny(model.config.model_type).to(dtype), ids()).logits
    assert logits.shape == (2, 24, VOCABULARY)
    assert logits.isfinite().all()


def test_logits_are_neither_faint_nor_extreme(model):
    assert 0.3 < run(model, ids()).logits.std() < 10


def test_the_library_s_own_initialisation_would_be_too_faint():
    config = tiny("llama").config
    assert run(AutoModelForCausalLM.from_config(config).eval(), ids()).logits.std() < 0.3


def test_an_earlier_token_changes_the_logits_of_a_later_one(model):
    assert effect(model, on=4, of=2) > 0.01


@pytest.mark.parametrize("model_type", CAUSAL)
def test_a_causal_model_does_not_see_a_later_token(model_type):
    # An expert is given more or fewer tokens, and sums of another length round otherwise.
    allowed = 1e-5 if model_type == "mixtral" else 0.0
    assert effect(tiny(model_type), on=2, of=4) <= allowed


@pytest.mark.parametrize("model_type", [*MASKED, "t5"])
def test_an_encoder_sees_a_later_token(model_type):
    assert effect(tiny(model_type), on=2, of=4) > 0.01


def test_the_whole_context_can_be_used(model):
    assert run(model, ids(CONTEXT)).logits.isfinite().all()


@pytest.mark.parametrize("model_type", ATTENTIVE)
def test_attention_is_neither_flat_nor_one_hot(model_type):
    strongest = [w.amax(-1).mean() for w in attentions(tiny(model_type), ids(16))]
    assert all(0.15 < weight < 0.9 for weight in strongest)


@pytest.mark.parametrize("model_type", ATTENTIVE)
def test_attention_tells_positions_apart_where_all_tokens_are_equal(model_type):
    assert unevenness(tiny(model_type)) > 0.02


def test_without_its_position_table_a_model_could_not_tell_positions_apart():
    model = tiny("gpt2")
    nn.init.zeros_(model.transformer.wpe.weight)
    assert unevenness(model) < 1e-6


def test_a_small_perturbation_stays_small(model):
    assert growth(tiny(model.config.model_type)) < 50


def test_a_chaotic_model_would_be_noticed():
    model = tiny("llama")
    model.model.norm.register_forward_pre_hook(lambda _, states: (torch.sin(300 * states[0]),))
    assert growth(model) > 50


def test_windows_are_crossed_by_24_tokens():
    assert tiny("mistral").config.sliding_window == WINDOW
    assert effect(tiny("mistral"), on=-1, of=0) == 0


def test_without_a_window_the_first_token_reaches_the_last():
    assert effect(tiny("llama"), on=-1, of=0) > 0.01


@pytest.mark.parametrize("model_type", ["gemma2", "modernbert"])
def test_both_kinds_of_layers_are_kept(model_type):
    assert set(tiny(model_type).config.layer_types) == {"sliding_attention", "full_attention"}


def test_gpt_neo_keeps_global_and_local_attention():
    config = tiny("gpt_neo").config
    assert config.attention_layers == ["global", "local"]
    assert config.window_size == WINDOW


def test_the_first_layer_of_every_kind_is_kept():
    fields = {"num_hidden_layers": 6, "layer_types": list("aabaca"), "mlp": list("xxxxyx")}
    assert kept_layers(fields) == [0, 2, 4]
    assert kept_layers({"num_hidden_layers": 6, "layer_types": list("aaaaaa")}) == [0, 1]


def test_sizes_only_shrink():
    assert small("hidden_size", 4096) == 32
    assert small("hidden_size", 12) == 12
    assert small("attention_dropout", 0.1) == 0.0
    assert small("rope_theta", 10000) == 10000


def test_mixtral_routes_to_every_expert_two_at_a_time():
    model = tiny("mixtral")
    routed = run(model, ids(), output_router_logits=True).router_logits
    assert model.config.num_experts_per_tok == 2
    assert all(layer.topk(2).indices.unique().numel() == 4 for layer in routed)


def test_t5_has_an_encoder_and_a_decoder():
    model = tiny("t5")
    assert len(model.get_encoder().block) == len(model.get_decoder().block) == 2


@pytest.mark.parametrize(
    ("types", "expected"), [(CAUSAL, "causal"), (MASKED, "masked"), (("t5",), "seq2seq")]
)
def test_a_type_comes_as_the_kind_of_model_that_its_configuration_says(types, expected):
    assert {usual_kind(t) for t in types} == {expected}


def test_an_encoder_configured_as_a_decoder_is_causal():
    assert usual_kind("bert", AutoConfig.for_model("bert", is_decoder=True)) == "causal"


@pytest.mark.parametrize("model_type", ["gpt2", "gemma2", "mamba", "bert", "t5"])
def test_a_tied_head_stays_tied(model_type):
    model = tiny(model_type)
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


def test_an_untied_head_is_its_own():
    model = tiny("llama")
    assert model.get_output_embeddings().weight is not model.get_input_embeddings().weight


def test_the_row_of_a_padding_token_stays_zero():
    table = tiny("bert").get_input_embeddings()
    assert table.padding_idx == 0
    assert not table.weight[0].any()
    assert table.weight[1:].any(-1).all()


def test_parameters_with_a_meaning_keep_it():
    mixer = tiny("mamba").backbone.layers[0].mixer
    plain = torch.log(torch.arange(1.0, 9.0)).expand(64, 8)
    assert 0 < (mixer.A_log - plain).abs().max() < 1
    assert 0 < (mixer.D - 1).abs().max() < 1


def test_frozen_parameters_are_left_alone():
    table = nn.Embedding.from_pretrained(torch.eye(4), freeze=True)
    to_unit_gain(table, seed=0)
    assert torch.equal(table.weight, torch.eye(4))


def test_norms_are_close_to_what_the_constructor_gave_and_biases_are_not_zero():
    block = tiny("gpt2").transformer.h[0]
    assert 0 < (block.ln_1.weight - 1).abs().mean() < 0.2
    assert block.attn.c_attn.bias.abs().min() > 0
    assert 0 < tiny("gemma2").model.norm.weight.abs().mean() < 0.2


def test_an_unknown_type_is_refused_with_the_types_near_it():
    with pytest.raises(BadInput, match=r"knows no model type 'lama'; near: .*llama"):
        tiny("lama")


def test_a_type_that_cannot_be_built_is_refused_in_one_line(monkeypatch):
    def broken(*_: object) -> None:
        raise ValueError("no such\nwidth")

    monkeypatch.setattr("fixtures.families.shrunk", broken)
    with pytest.raises(BadInput, match="'gpt2' cannot be built tiny: ValueError: no such width"):
        tiny("gpt2")


def test_every_type_is_listed_once_and_in_order():
    types = model_types()
    assert types == sorted(set(types))
    assert set(TYPES) < set(types)
    assert "vit" not in types


def test_a_description_names_the_class_the_layers_and_the_rules():
    assert "RobertaForMaskedLM" in describe("roberta")
    assert "begin after the padding id" in describe("roberta")
    assert "sliding_attention, full_attention" in describe("gemma2")


@torch.no_grad()
def growth(model: PreTrainedModel, size: float = 1e-6) -> float:
    """Relative change of the logits over that of the embeddings, in float64; ``model`` is cast."""
    model = model.double()
    if model.config.model_type == "mixtral":
        model.set_experts_implementation("eager")  # the default one has no float64
    embedded = model.get_input_embeddings()(ids())
    noise = torch.randn(embedded.shape, generator=torch.Generator().manual_seed(8)).double()
    moved = embedded + size * noise * embedded.norm() / noise.norm()
    options = {"decoder_input_ids": ids().flip(1)} if model.config.is_encoder_decoder else {}
    before, after = (model(inputs_embeds=e, **options).logits for e in (embedded, moved))
    return float((after - before).norm() / before.norm()) / size


@contextmanager
def unchanged_random_states() -> Iterator[None]:
    """Asserts that torch, numpy and `random` would draw the same after as before."""
    before = torch.get_rng_state(), str(numpy.random.get_state()), random.getstate()
    yield
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (str(numpy.random.get_state()), random.getstate()) == before[1:]


def test_layers_of_hybrids_are_asked_for_in_the_words_of_the_version(monkeypatch):
    values = NAMED["granitemoehybrid"].values["layer_types"]
    assert shrink._worded(values) == values == ["linear_attention", "full_attention"]
    early = {"linear_attention": "mamba", "full_attention": "attention"}
    monkeypatch.setattr(shrink, "_words", lambda: early)
    assert shrink._worded(values) == ["mamba", "attention"]
    assert shrink._worded(["conv", "full_attention"]) == ["conv", "full_attention"]
    assert shrink._worded(8) == 8
