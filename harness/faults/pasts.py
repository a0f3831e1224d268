"""Faults of caches of keys and values: read, kept, cut or rearranged wrongly."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from harness.faults.bed import Bed, Pass, own_cache
from harness.faults.catalogue import fault

KV = ["cache", "kv-cache", "attention cache of its own"]


def _past_changed(keys: Tensor, values: Tensor, past: int, change: Any) -> tuple[Tensor, Tensor]:
    """``change`` of the first ``past`` places of both, [rows, heads, places, width]."""
    parts = []
    for tensor in (keys, values):
        parts.append(torch.cat([change(tensor[..., :past, :]), tensor[..., past:, :]], dim=-2))
    return parts[0], parts[1]


@fault(
    "cache-shifted",
    "cached keys stand one place later than the values that belong to them",
    caught_by=["C2"],
    needs=KV,
)
def _(bed: Bed) -> None:
    bed.reading(_shifted)


def _shifted(seen: Pass, keys: Tensor, values: Tensor, past: int, layer: int) -> Any:
    # Keys stay where the mask has them: those of another place are what the values belong to.
    keys, _ = _past_changed(keys, values, past, lambda t: t.roll(1, -2))
    return keys, values


@fault(
    "cache-stale",
    "the newest cached entry is that of the token before it",
    caught_by=["C2"],
    needs=KV,
)
def _(bed: Bed) -> None:
    bed.reading(_stale)


def _stale(seen: Pass, keys: Tensor, values: Tensor, past: int, layer: int) -> Any:
    if past < 2:
        return keys, values
    old = lambda t: torch.cat([t[..., :-1, :], t[..., -2:-1, :]], dim=-2)  # noqa: E731
    return _past_changed(keys, values, past, old)


@fault(
    "cache-overwritten",
    "the oldest cached entry is overwritten by the newest",
    caught_by=["C2"],
    needs=KV,
)
def _(bed: Bed) -> None:
    bed.reading(_overwritten)


def _overwritten(seen: Pass, keys: Tensor, values: Tensor, past: int, layer: int) -> Any:
    new = past + seen.new - 1
    ring = lambda t: torch.cat([t[..., new : new + 1, :], t[..., 1:, :]], dim=-2)  # noqa: E731
    return ring(keys), ring(values)


@fault(
    "cache-rows-swapped",
    "the rows of a batch read each other's cache",
    caught_by=["C2"],
    needs=KV,
)
def _(bed: Bed) -> None:
    bed.reading(_swapped)


def _swapped(seen: Pass, keys: Tensor, values: Tensor, past: int, layer: int) -> Any:
    return _past_changed(keys, values, past, lambda t: t.flip(0))


@fault(
    "chunk-reads-a-shifted-cache",
    "only where several tokens come at once, cached keys are one place apart from their values",
    caught_by=["C2"],
    needs=KV,
)
def _(bed: Bed) -> None:
    bed.reading(_shifted_for_chunks)


def _shifted_for_chunks(seen: Pass, keys: Tensor, values: Tensor, past: int, layer: int) -> Any:
    return _shifted(seen, keys, values, past, layer) if seen.new > 1 else (keys, values)


@fault(
    "last-layer-not-cached",
    "what the last layer keeps of the past is zero",
    caught_by=["C2"],
    needs=KV,
)
def _(bed: Bed) -> None:
    bed.reading(_last_layer_empty)
    bed.set(bed.model, "_planted_last", bed.subject.layers - 1)
    bed.named(_tell_last)


def _tell_last(seen: Pass, model: Any, named: dict) -> None:
    seen.kept["last layer"] = model._planted_last


def _last_layer_empty(seen: Pass, keys: Tensor, values: Tensor, past: int, layer: int) -> Any:
    if layer < seen.kept["last layer"]:
        return keys, values
    return _past_changed(keys, values, past, torch.zeros_like)


@fault(
    "cache-rounded-to-8-bits",
    "cached entries are read as if they had been kept in 8 bits, unasked",
    caught_by=["C2"],
    needs=KV,
)
def _(bed: Bed) -> None:
    bed.reading(_rounded)


def _rounded(seen: Pass, keys: Tensor, values: Tensor, past: int, layer: int) -> Any:
    def in_8_bits(t: Tensor) -> Tensor:
        scale = t.abs().amax().clamp_min(1e-30) / 127
        return (t / scale).round() * scale

    return _past_changed(keys, values, past, in_8_bits)


@fault(
    "cache-in-half-precision",
    "cached entries are read in bfloat16",
    caught_by=["C2"],
    needs=KV,
)
def _(bed: Bed) -> None:
    bed.reading(_halved)


def _halved(seen: Pass, keys: Tensor, values: Tensor, past: int, layer: int) -> Any:
    return _past_changed(keys, values, past, lambda t: t.to(torch.bfloat16).to(t))


@fault(
    "static-cache-off-at-its-edge",
    "the last place of a cache of fixed length is read as the one before it",
    caught_by=["C2"],
    needs=[*KV, "static cache"],
)
def _(bed: Bed) -> None:
    bed.reading(_edge)


def _edge(seen: Pass, keys: Tensor, values: Tensor, past: int, layer: int) -> Any:
    most = own_cache(seen.cache).get_max_length()
    if most <= 0 or past + seen.new < most or keys.shape[-2] < 2:
        return keys, values
    edge = lambda t: torch.cat([t[..., :-1, :], t[..., -2:-1, :]], dim=-2)  # noqa: E731
    return edge(keys), edge(values)


@fault(
    "past-keys-rotated-again",
    "with every call the cached keys are turned a little further",
    caught_by=["C3"],
    needs=KV,
)
def _(bed: Bed) -> None:
    bed.named(_rotate_past)


def _rotate_past(seen: Pass, model: nn.Module, named: dict) -> None:
    if not seen.cached:
        return
    for layer in getattr(own_cache(seen.cache), "layers", ()):
        keys = getattr(layer, "keys", None)
        if isinstance(keys, Tensor) and keys.numel() and keys.shape[-1] > 1:
            turned = keys.clone()
            a, b = keys[..., 0], keys[..., 1]
            turned[..., 0], turned[..., 1] = 0.9999 * a - 0.0141 * b, 0.0141 * a + 0.9999 * b
            layer.keys.copy_(turned)


@fault(
    "past-attended-again",
    "a cached step computes the attention of the past to itself as well, and drops it",
    caught_by=["C11"],
    needs=KV,
)
def _(bed: Bed) -> None:
    bed.reading(_recomputed)


def _recomputed(seen: Pass, keys: Tensor, values: Tensor, past: int, layer: int) -> Any:
    dropped = (keys[..., :past, :] @ keys[..., :past, :].transpose(-1, -2)).sum() * 0.0
    return keys, values + dropped


@fault(
    "window-crop-one-too-far",
    "a cache that keeps a window drops one entry too many",
    caught_by=["C2"],
    needs=[*KV, "window"],
)
def _(bed: Bed) -> None:
    bed.reading(_cropped)
    bed.set(bed.model, "_planted_window", bed.subject.window)
    bed.named(_tell_window)


def _tell_window(seen: Pass, model: Any, named: dict) -> None:
    seen.kept["window"] = model._planted_window


def _cropped(seen: Pass, keys: Tensor, values: Tensor, past: int, layer: int) -> Any:
    if seen.past + 1 < seen.kept["window"]:
        return keys, values
    oldest = lambda t: torch.cat([t[..., :1, :] * 0, t[..., 1:, :]], dim=-2)  # noqa: E731
    return _past_changed(keys, values, past, oldest)


@fault(
    "beam-reorder-left-out",
    "the cache is not rearranged when beams change places",
    caught_by=["C4"],
    needs=["generation", "cache", "lm-head"],
)
def _(bed: Bed) -> None:
    bed.named(_never_reordered)


def _never_reordered(seen: Pass, model: nn.Module, named: dict) -> None:
    if seen.cache is not None:
        seen.cache.reorder_cache = _nothing


def _nothing(*_: Any) -> None:
    """Does nothing, as a method that was forgotten."""


@fault(
    "beam-reorder-wrong",
    "when beams change places, the cache is rearranged the other way round",
    caught_by=["C4"],
    needs=["generation", "cache", "lm-head"],
)
def _(bed: Bed) -> None:
    bed.named(_reordered_backwards)


def _reordered_backwards(seen: Pass, model: nn.Module, named: dict) -> None:
    cache = seen.cache
    if cache is not None and "reorder_cache" not in vars(cache):
        cache.reorder_cache = _Backwards(cache)


class _Backwards:
    """In the place of a cache's ``reorder_cache``: with the beams in reverse."""

    def __init__(self, cache: Any) -> None:
        self.usual = cache.reorder_cache

    def __call__(self, beams: Tensor) -> None:
        self.usual(beams.flip(0))


@fault(
    "cache-crop-left-out",
    "drafted tokens that were refused stay in the cache",
    caught_by=["C4", "C2"],
    needs=["drafts", *KV],
)
def _(bed: Bed) -> None:
    bed.named(_never_cropped)


def _never_cropped(seen: Pass, model: nn.Module, named: dict) -> None:
    if seen.cache is not None:
        own_cache(seen.cache).crop = _nothing
        seen.cache.crop = _nothing


@fault(
    "cache-shared-with-its-copy",
    "a copy of a cache is the cache itself",
    caught_by=["C2"],
    needs=["cache"],
)
def _(bed: Bed) -> None:
    bed.after_any(bed.model, _copied_as_itself)


def _copied_as_itself(seen: Pass, model: nn.Module, output: Any) -> None:
    for name in ("past_key_values", "cache_params"):
        cache = output.get(name) if hasattr(output, "get") else None
        if cache is not None:
            cache.__deepcopy__ = _Itself(cache)


class _Itself:
    """In the place of how a cache is copied."""

    def __init__(self, cache: Any) -> None:
        self.cache = cache

    def __call__(self, memo: dict) -> Any:
        return self.cache
