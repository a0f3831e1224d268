"""Caches: every kind decodes the same, stale ones do not, and entries stay what they were."""

from __future__ import annotations

from types import SimpleNamespace

import hypothesis.errors
import pytest
import torch
from transformers import DynamicCache, EncoderDecoderCache, StaticCache

from assay.harness.checking.check import Check
from assay.harness.models.capabilities import Missing, caches
from assay.harness.models.subject import Subject
from assay.harness.operations import cache_operations
from assay.harness.results.errors import Unavailable
from assay.harness.tests.support.toys import fresh, is_broken, prompt, toy

KINDS = {
    "gpt2": {"default", "dynamic", "static", "quantised"},
    "llama": {"default", "dynamic", "static", "quantised"},
    "mistral": {"default", "dynamic", "sliding", "static"},
    "t5": {"default", "dynamic", "static"},
    "t5gemma": {"default", "dynamic", "static", "sliding"},
    "mamba": {"default", "static"},
}
"""Caches that a type takes on a machine without an accelerator."""


def offered(model_type: str) -> set[str]:
    kinds = set()
    for kind in caches.KINDS:
        try:
            caches.make(toy(model_type), kind, 2, 10)
        except Missing:
            continue
        kinds.add(kind)
    return kinds


def plain(subject, ids):
    return Check(subject).reference(lambda s: s.rows(ids, states=False))


@pytest.mark.skipif(torch.accelerator.is_available(), reason="a GPU offloads as well")
@pytest.mark.parametrize(("model_type", "kinds"), KINDS.items())
def test_a_model_is_offered_the_caches_that_it_takes(model_type, kinds):
    assert offered(model_type) == kinds


@pytest.mark.parametrize(
    ("model_type", "kind", "why"),
    [
        ("rwkv", "dynamic", "takes no cache of keys and values"),
        ("mamba", "dynamic", "asks for LinearAttentionLayer"),
        ("xlstm", "quantised", "makes a cache of its own type"),
        ("llama", "sliding", "no layer has a sliding window"),
        ("t5", "sliding", "no layer has a sliding window"),
        ("t5", "quantised", "made of two"),
        ("mistral", "quantised", "only full attention"),
    ],
)
def test_a_cache_that_is_not_offered_says_why(model_type, kind, why):
    with pytest.raises(Missing, match=why):
        caches.make(toy(model_type), kind, 1, 4)


def test_an_unknown_kind_is_an_error_of_ours():
    with pytest.raises(ValueError, match="no cache of kind 'magic'"):
        caches.make(toy("llama"), "magic", 1, 4)


@pytest.mark.parametrize(
    ("model_type", "kind"),
    [(name, kind) for name, kinds in KINDS.items() for kind in sorted(kinds - {"quantised"})],
)
def test_decoding_in_chunks_is_decoding_at_once(model_type, kind):
    subject = toy(model_type)
    ids = prompt(subject, 10)
    # Transformers 5.23 begins mamba's recurrence from scratch for more than one token.
    chunks = [4, 1, 1, 1, 1, 1, 1] if model_type == "mamba" else [3, 1, 6]
    decoded = caches.decode(subject, ids, chunks, kind)
    assert not is_broken(Check(subject), plain(subject, ids), decoded)


@pytest.mark.parametrize("model_type", ["gpt2", "mistral", "mamba", "t5"])
def test_decoding_on_a_stale_cache_is_caught(model_type):
    subject = toy(model_type)
    ids = prompt(subject, 10)
    stale = caches.decode(subject, ids, [4, 6], stale=True).at(slice(4, None))
    assert is_broken(Check(subject), plain(subject, ids).at(slice(4, None)), stale)


def test_chunks_must_sum_to_the_prompt():
    with pytest.raises(ValueError, match="do not sum to 9"):
        caches.decode(toy("gpt2"), prompt(toy("gpt2")), [4, 4])


@pytest.mark.parametrize(("model_type", "kind"), [("gpt2", "default"), ("llama", "static")])
def test_the_past_is_the_same_before_and_after_it_grew(model_type, kind):
    subject = toy(model_type)
    before, after = caches.grown(subject, prompt(subject, 10), 6, kind)
    assert len(before) == len(after) == 2 * subject.layers
    for old, new in zip(before, after, strict=True):
        assert old.shape[-2] == 6
        assert torch.equal(old, new)
        assert not torch.equal(old, new.roll(1, dims=-2))


def test_the_past_grows_token_by_token_where_a_model_takes_no_more():
    subject = toy("tiny:causal:prophetnet")
    before, after = caches.grown(subject, prompt(subject, 10), 6)
    assert len(before) == 2 * subject.layers
    assert all(torch.equal(old, new) for old, new in zip(before, after, strict=True))


def test_a_layer_with_a_window_is_compared_where_both_still_hold_the_past():
    subject = toy("mistral")  # its window is 8: seven tokens of the past are kept
    before, after = caches.grown(subject, prompt(subject, 12), 9, "sliding")
    assert {old.shape[-2] for old in before} == {4}  # places 5 to 8
    assert all(torch.equal(old, new) for old, new in zip(before, after, strict=True))


def test_entries_are_keys_and_values_of_every_layer():
    subject = toy("llama")
    cache = subject(prompt(subject, 5), keep=True).cache
    pairs = caches.entries(cache)
    assert [key.shape for key, _ in pairs] == [(2, 2, 5, 8)] * subject.layers
    assert all(key.shape == value.shape for key, value in pairs)


def test_the_entries_of_an_encoder_decoder_are_its_decoder_s_own():
    subject = toy("t5")
    cache = subject(prompt(subject, 5), keep=True).cache
    assert {key.shape[-2] for key, _ in caches.entries(cache)} == {5}


# What is made, and what is asked of a model.


@pytest.fixture
def passes(monkeypatch):
    """The ids of every pass through a subject, and what else it is asked for."""
    calls, plain = [], Subject.__call__

    def call(subject, ids, **how):
        calls.append((ids, {**how, "cache": type(how.get("cache"))}))
        return plain(subject, ids, **how)

    monkeypatch.setattr(Subject, "__call__", call)
    return calls


def test_a_stale_cache_is_of_the_prompt_moved_one_place_and_the_rest_is_as_it_was(passes):
    subject = toy("gpt2")
    ids = prompt(subject, 6)
    caches.decode(subject, ids, [3, 1, 2], stale=True)
    assert passes[0][0].equal(torch.cat([ids[:, -1:], ids[:, :2]], dim=1))
    assert [tokens.tolist() for tokens, _ in passes[1:]] == [
        ids[:, 3:4].tolist(),
        ids[:, 4:].tolist(),
    ]
    assert all(how["states"] is False for _, how in passes)


@pytest.mark.parametrize(
    ("kind", "made"),
    [("default", type(None)), ("dynamic", DynamicCache), ("static", StaticCache)],
)
def test_the_past_is_kept_in_the_kind_of_cache_asked_for(passes, kind, made):
    subject = toy("llama")
    ids = prompt(subject, 6)
    caches.grown(subject, ids, 4, kind)
    passes.clear()  # of what is asked once
    caches.grown(subject, ids, 4, kind)
    assert [tokens.tolist() for tokens, _ in passes] == [ids[:, :4].tolist(), ids[:, 4:].tolist()]
    assert passes[0][1]["cache"] is made
    assert issubclass(passes[1][1]["cache"], DynamicCache if kind == "default" else made)
    assert all(how["states"] is False for _, how in passes)


@pytest.mark.filterwarnings("ignore:Using `reject` outside")
def test_a_past_of_which_one_token_is_left_is_compared_and_of_which_none_is_is_not():
    subject = toy("mistral")  # seven tokens of the past are kept
    before, _ = caches.grown(subject, prompt(subject, 15), 9, "sliding")
    assert {old.shape[-2] for old in before} == {1}
    with pytest.raises(hypothesis.errors.UnsatisfiedAssumption):
        caches.grown(subject, prompt(subject, 16), 9, "sliding")


@pytest.mark.parametrize(("kind", "own"), [("dynamic", DynamicCache), ("static", StaticCache)])
def test_an_encoder_decoder_s_cache_is_of_the_kind_beside_a_dynamic_one(kind, own):
    made = caches.make(toy("t5"), kind, 1, 5)
    assert type(made) is EncoderDecoderCache
    assert type(made.self_attention_cache) is own
    assert type(made.cross_attention_cache) is DynamicCache
    if kind == "static":
        assert made.self_attention_cache.layers[0].max_cache_len == 5


@pytest.mark.parametrize("model_type", ["llama", "mamba", "mistral"])
def test_a_growing_cache_knows_the_model_s_layers(model_type):
    subject = toy(model_type)
    made = cache_operations.growing(subject)
    assert type(made) is DynamicCache
    assert len(made.layers) == subject.layers


def test_a_growing_cache_of_an_encoder_decoder_is_two():
    made = cache_operations.growing(toy("t5"))
    assert type(made) is EncoderDecoderCache
    assert type(made.self_attention_cache) is type(made.cross_attention_cache) is DynamicCache
    assert len(made.self_attention_cache.layers) == toy("t5").layers


def test_what_takes_no_cache_has_no_growing_one():
    with pytest.raises(Missing, match=r"^the model's forward takes no cache$"):
        cache_operations.growing(SimpleNamespace(cache_argument=None))


def test_only_a_model_on_an_accelerator_has_an_offloaded_cache(monkeypatch):
    with pytest.raises(Unavailable, match=r"^offloading moves keys and values off an acc"):
        caches.make(toy("llama"), "offloaded", 1, 4)
    monkeypatch.setattr(Subject, "device", torch.device("cuda"))
    how = lambda *, config, offloading: {"config": config, "offloading": offloading}  # noqa: E731
    monkeypatch.setattr(caches.compat.transformers, "DynamicCache", how)
    made = caches.make(toy("llama"), "offloaded", 1, 4)
    assert made == {"config": toy("llama").config, "offloading": True}


@pytest.mark.parametrize(
    ("error", "said"),
    [(TypeError(), "TypeError"), (ValueError("too long\nby far"), "too long")],
)
def test_a_cache_that_this_version_does_not_make_says_why_in_one_line(monkeypatch, error, said):
    def refuse(**how):
        raise error

    monkeypatch.setattr(caches.compat.transformers, "StaticCache", refuse)
    with pytest.raises(Missing, match=f"has no static cache here: {said}$"):
        caches.make(toy("llama"), "static", 1, 4)


def test_models_that_say_they_take_no_static_cache_are_believed():
    subject = fresh("llama")
    caches._require_static(subject)
    subject.model._supports_static_cache = False
    with pytest.raises(
        Missing, match=r"no support for static caches \(_supports_static_cache = False\)$"
    ):
        caches._require_static(subject)


def test_a_model_that_is_not_compiled_is_held_to_its_static_cache_all_the_same():
    """`bert` says nothing of compiling, and decodes well; `gpt_neo` says no, and does not."""
    for model_type, broken in {"tiny:causal:bert": False, "gpt_neo": True}.items():
        subject = toy(model_type)
        assert subject.model._can_compile_fullgraph is False
        ids = prompt(subject, 10)
        decoded = caches.decode(subject, ids, [4, 1, 5], "static")
        assert is_broken(Check(subject), plain(subject, ids), decoded) is broken


def test_a_static_cache_that_knows_no_layers_of_a_kind_says_which():
    with pytest.raises(Missing, match="no static cache here: it knows no 'heavily_compressed_att"):
        caches.make(toy("deepseek_v4"), "static", 1, 4)


@pytest.mark.parametrize(
    ("config", "slides"),
    [
        ({"layer_types": ["full_attention", "sliding_attention"]}, True),
        ({"layer_types": ["full_attention"], "sliding_window": 8}, False),
        ({"layer_types": None, "sliding_window": 8}, True),
        ({"sliding_window": None}, False),
        ({}, False),
    ],
)
def test_what_a_configuration_says_of_layers_goes_before_its_window(config, slides):
    assert caches._slides(SimpleNamespace(config=SimpleNamespace(**config))) is slides


# Entries.


def test_entries_of_older_caches_are_found_and_layers_without_keys_are_left_out():
    full, empty = torch.ones(1, 1, 2, 4), torch.zeros(0)
    older = SimpleNamespace(key_cache=[full, empty], value_cache=[2 * full, empty])
    assert [(k.sum(), v.sum()) for k, v in caches.entries(older)] == [(8, 16)]
    with pytest.raises(ValueError, match="zip"):
        caches.entries(SimpleNamespace(key_cache=[full], value_cache=[]))
    layers = [SimpleNamespace(keys=full, values=None), SimpleNamespace(), SimpleNamespace(keys=[])]
    assert caches.entries(SimpleNamespace(layers=layers)) == []


@pytest.mark.parametrize(("model_type", "kind"), [("minimax", "MiniMaxCache"), ("rwkv", "list")])
def test_what_makes_a_cache_of_its_own_kind_is_given_no_other(model_type, kind):
    with pytest.raises(Missing, match=f"^the model makes a cache of its own type, a {kind}$"):
        cache_operations.growing(toy(model_type))


def test_a_model_that_breaks_on_its_cache_is_given_a_common_one(monkeypatch):
    subject = fresh("llama")

    def broken(past_key_values=None, **options):
        raise AttributeError("no such number")

    monkeypatch.setattr(subject.model, "forward", broken)
    assert type(cache_operations.growing(subject)) is DynamicCache


def test_rows_that_go_astray_beside_a_cache_break_a_law_and_are_no_missing_capability():
    """Rwkv shifts a state of [batch, hidden] beside one token of [batch, 1, hidden]."""
    subject = toy("rwkv")
    ids = prompt(subject, 4)
    one = caches.decode(subject, ids[:1], [3, 1])
    assert not is_broken(Check(subject), plain(subject, ids[:1]), one)
    with pytest.raises(ValueError, match=r"with a cache .* no row .* \[2, 2, 101\]"):
        caches.decode(subject, ids, [3, 1])
