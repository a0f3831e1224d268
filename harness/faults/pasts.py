"""Faults of key-value caches: wrong reads, storage, crops or reorders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessorList

from assay.harness.faults.bed import Bed
from assay.harness.faults.calls import CacheRead, Pass, own_cache
from assay.harness.faults.catalogue import FAR, fault
from assay.harness.faults.spots import output
from assay.harness.models.subject import roles
from assay.harness.models.subject.roles import Role

KV = ["cache", "kv-cache", "attention cache of its own"]


def _last_as_before(entries: Tensor) -> Tensor:
    """``entries`` [..., positions, width], the last replaced by the one before it."""
    return torch.cat([entries[..., :-1, :], entries[..., -2:-1, :]], dim=-2)


@fault(
    "cache-shifted",
    "cached keys are one position later than their values",
    caught_by=["C2"],
    needs=KV,
    at=Bed.reading,
)
def _shifted(read: CacheRead) -> CacheRead:
    # Keys are rolled among the same slots, so that each value belongs to another's key.
    return replace(read.past_changed(lambda t: t.roll(1, -2)), values=read.values)


@fault(
    "far-keys-shifted",
    f"cached keys from position {FAR} on are one position later than their values",
    caught_by=["C2", "C4", "G7"],
    needs=[*KV, "far prompts"],
    at=Bed.reading,
)
def _far_shifted(read: CacheRead) -> CacheRead:
    def far_rolled(keys: Tensor) -> Tensor:
        return torch.cat([keys[..., :FAR, :], keys[..., FAR:, :].roll(1, -2)], dim=-2)

    return replace(read.past_changed(far_rolled), values=read.values)


@fault(
    "cache-stale",
    "the newest cached entry is that of the token before it",
    caught_by=["C2"],
    needs=KV,
    at=Bed.reading,
)
def _stale(read: CacheRead) -> CacheRead:
    return read if read.past < 2 else read.past_changed(_last_as_before)


@fault(
    "cache-overwritten",
    "the oldest cached entry is overwritten by the newest",
    caught_by=["C2"],
    needs=KV,
    at=Bed.reading,
)
def _overwritten(read: CacheRead) -> CacheRead:
    new = read.past + read.forward.new - 1
    return read.changed(lambda t: torch.cat([t[..., new : new + 1, :], t[..., 1:, :]], dim=-2))


@fault(
    "cache-rows-swapped",
    "the rows of a batch read each other's cache",
    caught_by=["C2"],
    needs=KV,
    at=Bed.reading,
)
def _swapped(read: CacheRead) -> CacheRead:
    return read.past_changed(lambda t: t.flip(0))


@fault(
    "chunk-reads-a-shifted-cache",
    "only where several tokens come at once, cached keys are one position away from their values",
    caught_by=["C2"],
    needs=KV,
    at=Bed.reading,
)
def _shifted_for_chunks(read: CacheRead) -> CacheRead:
    return _shifted(read) if read.forward.new > 1 else read


@fault(
    "last-layer-not-cached",
    "what the last layer keeps of the past is zero",
    caught_by=["C2"],
    needs=KV,
    at=Bed.reading,
)
def _last_layer_empty(read: CacheRead) -> CacheRead:
    return read.past_changed(torch.zeros_like) if read.layer == read.forward.layers - 1 else read


@fault(
    "cache-rounded-to-8-bits",
    "cached entries are read as if they were stored in 8 bits",
    caught_by=["C2"],
    needs=KV,
    at=Bed.reading,
)
def _rounded(read: CacheRead) -> CacheRead:
    def in_8_bits(t: Tensor) -> Tensor:
        scale = t.abs().amax().clamp_min(1e-30) / 127
        return (t / scale).round() * scale

    return read.past_changed(in_8_bits)


@fault(
    "cache-in-half-precision",
    "cached entries are read in bfloat16",
    caught_by=["C2"],
    needs=KV,
    at=Bed.reading,
)
def _halved(read: CacheRead) -> CacheRead:
    return read.past_changed(lambda t: t.to(torch.bfloat16).to(t))


@fault(
    "static-cache-off-at-its-edge",
    "the last position of a static cache is read as the one before it",
    caught_by=["C2"],
    needs=[*KV, "static cache"],
    at=Bed.reading,
)
def _edge(read: CacheRead) -> CacheRead:
    most = own_cache(read.forward.cache).get_max_length()
    if most <= 0 or read.past + read.forward.new < most or read.keys.shape[-2] < 2:
        return read
    return read.changed(_last_as_before)


@fault(
    "past-keys-rotated-again",
    "with every call the cached keys are turned a little further",
    caught_by=["C3"],
    needs=KV,
    at=Bed.arguments,
)
def _rotate_past(forward: Pass, kwargs: dict[str, Any]) -> None:
    if not forward.cached:
        return
    for layer in getattr(own_cache(forward.cache), "layers", ()):
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
    at=Bed.reading,
)
def _recomputed(read: CacheRead) -> CacheRead:
    keys = read.keys[..., : read.past, :]
    dropped = (keys @ keys.mT).sum() * 0.0
    return replace(read, values=read.values + dropped)


@fault(
    "window-crop-one-too-far",
    "a cache that keeps a window drops one entry too many",
    caught_by=["C2"],
    needs=[*KV, "window"],
    at=Bed.reading,
)
def _cropped(read: CacheRead) -> CacheRead:
    if read.forward.past + 1 < (read.forward.window or 0):
        return read
    return read.past_changed(lambda t: torch.cat([t[..., :1, :] * 0, t[..., 1:, :]], dim=-2))


@fault(
    "beam-reorder-left-out",
    "the cache is not reordered when beams are reordered",
    caught_by=["C4"],
    needs=["generation", "cache", "lm-head"],
    at=Bed.arguments,
)
def _never_reordered(forward: Pass, kwargs: dict[str, Any]) -> None:
    if forward.cache is not None:
        forward.cache.reorder_cache = _nothing


def _nothing(*_: Any) -> None:
    """Does nothing, like a method that was forgotten."""


@fault(
    "beam-reorder-wrong",
    "when beams are reordered, the cache is reordered by the inverse",
    caught_by=["C4"],
    needs=["generation", "cache", "lm-head"],
    at=Bed.arguments,
)
def _reordered_backwards(forward: Pass, kwargs: dict[str, Any]) -> None:
    cache = forward.cache
    if cache is not None and "reorder_cache" not in vars(cache):
        cache.reorder_cache = partial(_backwards, cache.reorder_cache)


def _backwards(usual: Callable[[Tensor], None], beams: Tensor) -> None:
    """Replaces a cache's ``reorder_cache``: the beams are reversed."""
    usual(beams.flip(0))


@fault(
    "quantised-states-not-reordered",
    "when beams are reordered, a quantised cache reorders its newest states alone",
    caught_by=["C2"],
    needs=[*KV, "quantised cache"],
    at=Bed.arguments,
)
def _newest_reordered(forward: Pass, kwargs: dict[str, Any]) -> None:
    for layer in getattr(own_cache(forward.cache), "layers", ()):
        if hasattr(layer, "_pending_beam_idx") and "reorder_cache" not in vars(layer):
            layer.reorder_cache = partial(_newest, layer, layer.reorder_cache)


def _newest(layer: Any, usual: Callable[[Tensor], None], beams: Tensor) -> None:
    """Replaces the ``reorder_cache`` of a quantised layer: older states stay where they are."""
    usual(beams)
    layer._pending_beam_idx = None


@fault(
    "cache-crop-left-out",
    "rejected drafted tokens stay in the cache",
    caught_by=["C4", "C2", "G6"],
    needs=["drafts", *KV],
    at=Bed.arguments,
)
def _never_cropped(forward: Pass, kwargs: dict[str, Any]) -> None:
    if forward.cache is not None:
        own_cache(forward.cache).crop = _nothing
        forward.cache.crop = _nothing


@fault(
    "draft-accepted-unseen",
    "assisted decoding accepts every draft, even one that the model would not choose",
    caught_by=["C4", "G6"],
    needs=["drafts"],
)
def _accepted_unseen(bed: Bed) -> None:
    bed.set(bed.model, "generate", _Trusting(bed.model, bed.forward))


class _Trusting:
    """Replaces a model's ``generate``: it chooses the drafted tokens that a pass read.

    The logits of the pass stay as they are.
    """

    def __init__(self, model: Any, forward: Pass) -> None:
        self.model, self.forward = model, forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        own = kwargs.pop("logits_processor", None) or ()
        kwargs["logits_processor"] = LogitsProcessorList([*own, self.choose])
        return type(self.model).generate(self.model, *args, **kwargs)

    def choose(self, ids: Tensor, scores: Tensor) -> Tensor:
        """Scores [1, V] of the token after ``ids`` [1, n], the drafted one's above all others."""
        index = ids.shape[1] - self.forward.past
        if self.forward.ids is None or not 0 < index < self.forward.new:
            return scores
        return scores.scatter(1, self.forward.ids[:, index, None], torch.inf)


@fault(
    "cache-shared-with-its-copy",
    "a copy of a cache is the cache itself",
    caught_by=["C2"],
    needs=["cache"],
    at=output,
)
def _copied_as_itself(forward: Pass, result: Any) -> None:
    if (cache := roles.returned_cache(result)) is not None:
        cache.__deepcopy__ = partial(_itself, cache)


def _itself(cache: Any, memo: dict[int, Any]) -> Any:
    """Replaces the method that copies a cache."""
    return cache


@fault(
    "cache-dropped-past-the-window",
    "generation that grows longer than the window drops its cache and goes on from the last token",
    caught_by=["C4"],
    needs=["cached-generation", "window"],
)
def _dropped(bed: Bed) -> None:
    forgetting = partial(_forgetting, bed.model, bed.subject.window or 0)
    bed.set(bed.model, "prepare_inputs_for_generation", forgetting)


def _forgetting(model: Any, length: int, ids: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Replaces a model's ``prepare_inputs_for_generation`` (as in docs/defects,
    phi4_multimodal_forgets_its_prompt.py).
    """
    name = roles.name_in(kwargs, Role.CACHE)
    if name and kwargs[name].get_seq_length() <= length < ids.shape[1]:
        kwargs[name] = None
    return type(model).prepare_inputs_for_generation(model, ids, *args, **kwargs)
