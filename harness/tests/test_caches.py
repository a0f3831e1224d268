"""Caches: every kind decodes the same, stale ones do not, and entries stay what they were."""

from __future__ import annotations

import copy

import hypothesis.errors
import pytest
import torch

from harness import caches
from harness.capabilities import Missing
from harness.check import Check
from harness.tests.toys import is_broken, prompt, toy

CHUNKS = ([1] * 10, [10], [4, 1, 1, 1, 1, 1, 1], [3, 1, 6])
KINDS = {
    "gpt2": {"default", "dynamic", "static", "quantised"},
    "llama": {"default", "dynamic", "static", "quantised"},
    "mistral": {"default", "dynamic", "sliding", "static"},
    "t5": {"default", "dynamic", "static"},
    "mamba": {"default"},
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


@pytest.mark.skipif(torch.accelerator.is_available(), reason="an accelerator offloads as well")
@pytest.mark.parametrize(("model_type", "kinds"), KINDS.items())
def test_a_model_is_offered_the_caches_that_it_takes(model_type, kinds):
    assert offered(model_type) == kinds


@pytest.mark.parametrize(
    ("model_type", "kind", "why"),
    [
        ("mamba", "dynamic", "takes no cache of keys and values"),
        ("llama", "sliding", "no layer has a sliding window"),
        ("t5", "quantised", "made of two"),
        ("gpt_neo", "static", "takes no static cache"),
        ("mistral", "quantised", "only full attention"),
    ],
)
def test_a_cache_that_is_not_offered_says_why(model_type, kind, why):
    with pytest.raises(Missing, match=why):
        caches.make(toy(model_type), kind, 1, 4)


def test_an_unknown_kind_is_an_error_of_ours():
    with pytest.raises(ValueError, match="no cache of kind 'magic'"):
        caches.make(toy("llama"), "magic", 1, 4)


@pytest.mark.parametrize("chunks", CHUNKS, ids=str)
@pytest.mark.parametrize(
    ("model_type", "kind"),
    [(m, k) for m, kinds in KINDS.items() for k in sorted(kinds - {"quantised"})],
)
def test_decoding_in_chunks_is_decoding_at_once(model_type, kind, chunks):
    subject = toy(model_type)
    if model_type == "mamba" and max(chunks[1:], default=1) > 1:
        pytest.skip("transformers 5.23 begins a recurrence anew for more than one token")
    ids = prompt(subject, 10)
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


def test_a_layer_with_a_window_is_compared_where_both_still_hold_the_past():
    subject = toy("mistral")  # its window is 8: seven tokens of the past are kept
    before, after = caches.grown(subject, prompt(subject, 12), 9, "sliding")
    assert {old.shape[-2] for old in before} == {4}  # places 5 to 8
    assert all(torch.equal(old, new) for old, new in zip(before, after, strict=True))


@pytest.mark.filterwarnings("ignore:Using `reject` outside")
def test_a_past_that_has_left_the_window_gives_nothing_to_compare():
    subject = toy("mistral")
    with pytest.raises(hypothesis.errors.UnsatisfiedAssumption):
        caches.grown(subject, prompt(subject, 30), 9, "sliding")


def test_entries_are_keys_and_values_of_every_layer():
    subject = toy("llama")
    cache = subject(prompt(subject, 5), keep=True).cache
    pairs = caches.entries(cache)
    assert [key.shape for key, _ in pairs] == [(2, 2, 5, 8)] * subject.layers
    assert all(key.shape == value.shape for key, value in pairs)


def test_a_recurrence_has_no_entries():
    subject = toy("mamba")
    assert caches.entries(subject(prompt(subject), keep=True).cache) == []


def test_the_entries_of_an_encoder_decoder_are_its_decoder_s_own():
    subject = toy("t5")
    cache = subject(prompt(subject, 5), keep=True).cache
    assert {key.shape[-2] for key, _ in caches.entries(cache)} == {5}


def test_the_ideal_cache_of_eight_bits_costs_something_but_little():
    subject = toy("llama")
    ids = prompt(subject, 10)
    exact = subject.rows(ids, states=False)["logits"]
    rounded = caches.decode(subject, ids, [10], caches.IDEAL)["logits"]
    error = float((rounded - exact).norm() / exact.norm())
    assert 1e-4 < error < 0.2


def test_decoding_leaves_a_model_as_it_was():
    subject = toy("gpt2")
    before = copy.deepcopy(subject.model.state_dict())
    caches.decode(subject, prompt(subject), [4, 5], "static")
    assert all(torch.equal(before[k], v) for k, v in subject.model.state_dict().items())
