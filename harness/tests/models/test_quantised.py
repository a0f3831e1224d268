"""Caches in 8 bits: what is promised of them, and broken ones that the law must reject."""

from __future__ import annotations

import pytest
import torch
import transformers

from assay.claims.cache import test_cache, test_cache_quantised
from assay.harness import faults
from assay.harness.faults import kills
from assay.harness.models.capabilities import cache_histories, quantised_caches
from assay.harness.models.capabilities.cache_histories import History
from assay.harness.results.verdicts import LEAK, LEAK_GOAL, Verdict
from assay.harness.tests.support.toys import toy, verdict

KEEPS = test_cache_quantised.test_a_quantised_cache_keeps_its_first_scale
FP8 = getattr(transformers.cache_utils, "Fp8QuantizedLayer", None)
if FP8 is None:
    reason = f"missing capability: a cache in 8 bits (transformers {transformers.__version__})"
    pytest.skip(reason, allow_module_level=True)

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])


def test_both_laws_about_quantised_caches_say_what_they_see():
    details = verdict(KEEPS, toy("llama")).details
    assert details[LEAK] <= details[LEAK_GOAL] == cache_histories.must_see(torch.float32)
    decoded = test_cache.test_cached_decoding_equals_recomputation
    details = verdict(decoded, toy("llama"), arguments={"kind": "quantised"}).details
    assert 0.01 < details[LEAK] < 1
    assert LEAK_GOAL not in details


def drawn(
    *sizes: int, scale: float = 1.0, seed: int = 0, dtype: torch.dtype = torch.float32
) -> list[torch.Tensor]:
    """States [2, 3, new, 16], an update for each of ``sizes``, each ``scale`` times the last."""
    generator = torch.Generator().manual_seed(seed)
    every = [torch.randn(2, 3, new, 16, generator=generator) for new in sizes]
    return [(states * scale**i).to(dtype) for i, states in enumerate(every)]


def kept(updates: list[torch.Tensor]) -> History:
    """What a sound cache holds of them."""
    cache, history = quantised_caches.RoundedCache(), History()
    for states in updates:
        keys, _ = cache.update(states, states, 0)
        history.updates.append(states)
        history.contents.append(keys.clone())
    return history


@DTYPES
def test_numbers_are_rounded_to_three_bits_and_cut_off_at_the_scale(dtype):
    states = torch.linspace(-3, 3, 1001).to(dtype)
    scale = quantised_caches.scale_of(torch.tensor([2.0]))
    rounded = quantised_caches.rounded(states, scale)
    assert rounded.dtype == dtype
    meant = states.float().clamp(-2, 2)
    allowed = (
        quantised_caches.ROUNDING + torch.finfo(dtype).eps
    ) * meant.abs() + quantised_caches.SMALLEST * scale
    assert bool(((rounded.float() - meant).abs() <= allowed).all())
    assert bool((rounded.float() - meant).abs().amax() > 0.05)


@DTYPES
def test_a_cache_that_keeps_its_scale_is_within_the_bound_and_a_broken_one_is_not(dtype):
    damages = cache_histories.rescaled, cache_histories.enlarged, cache_histories.stale
    for seed in range(5):
        for scale in (0.3, 1.0, 5.0):
            sound = kept(drawn(9, 50, 9, 9, scale=scale, seed=seed, dtype=dtype))
            assert 0.8 < sound.excess <= 1, (seed, scale)
        for damage in damages:
            broken = kept(drawn(9, 50, 9, seed=seed, dtype=dtype)).changed(damage)
            assert broken.excess > 1, (seed, damage)


@DTYPES
def test_a_scale_that_is_off_by_what_must_be_seen_is_seen_and_a_sound_one_is_not(dtype):
    history = kept(drawn(9, 50, 9, dtype=dtype))
    assert history.with_leak(0.0) <= 1 < history.with_leak(cache_histories.must_see(dtype))


def test_a_number_that_is_none_is_beyond_the_bound():
    history = kept(drawn(2, 2))
    history.contents[1][0, 0, 0, 0] = torch.nan
    assert history.excess == float("inf")


def test_the_library_s_cache_is_what_the_law_says():
    result = verdict(KEEPS, toy("llama"))
    assert result.verdict is Verdict.UPHELD, result.reason
    rejected = int(result.details["controls rejected"].split()[0])
    assert rejected >= 3


@pytest.mark.parametrize(
    "name",
    ["quantised-scales-exchanged", "quantised-past-rounded-again", "quantised-past-shifted"],
)
@pytest.mark.parametrize("spec", ["gpt2", "llama"])
def test_the_law_catches_each_injected_fault(spec, name):
    with faults.injected(faults.named(name), toy(spec)) as damaged:
        result = verdict(KEEPS, damaged, kills.MUST)
    assert result.verdict is Verdict.REFUTED
    assert verdict(KEEPS, toy(spec)).verdict is Verdict.UPHELD
