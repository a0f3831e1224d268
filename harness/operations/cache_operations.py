"""Changes a cache between two passes: reorders its rows, or takes drafts back."""

from __future__ import annotations

from typing import Any

import transformers
from torch import Tensor

from assay.harness.models.capabilities import Missing, caches
from assay.harness.models.subject import Subject, compat

ROW_OPERATIONS = ("reorder_cache", "batch_select_indices", "batch_repeat_interleave")
"""Operations of transformers' caches on the rows of a batch."""


def fill_cache(
    subject: Subject, ids: Tensor, kind: str = "default", spare: int = 0, **options: Any
) -> Any:
    """A cache of ``kind`` after reading the prompts ``ids`` [batch, n] in one pass.

    A static one has room for ``spare`` more tokens; ``options`` go to the pass.  Raises `Missing`
    where there is no such cache.
    """
    cache = caches.make(subject, kind, ids.shape[0], ids.shape[1] + spare)
    return subject(ids, cache=cache, keep=True, states=False, **options).cache


def growing(subject: Subject) -> Any:
    """A fresh cache that grows with its input: keys and values, or a recurrent state.

    Raises `Missing` where the model takes no cache, or makes one of its own type.
    """
    if subject.cache_argument is None:
        raise Missing("the model's forward takes no cache")
    compat.require_cache_objects(subject.model)
    caches.require_common_kind(subject)
    own = compat.configured_cache(subject.config)
    compat.require_room_for_state(subject.model, own)
    if not subject.is_encoder_decoder:
        return own
    return transformers.EncoderDecoderCache(own, transformers.DynamicCache())


def rearrange(cache: Any, operation: str, rows: Tensor) -> Any:
    """``cache`` with row ``rows[j]`` of its batch at row j, by one of `ROW_OPERATIONS`, in place.

    ``rows`` [new batch]; for ``batch_repeat_interleave`` every row as often as the first.  Raises
    `Missing` where the cache, or a layer of it, has no such operation.
    """
    if not _offers(cache, operation):
        raise Missing(f"a layer of its cache has no {operation}")
    if operation == "batch_repeat_interleave":
        cache.batch_repeat_interleave(int((rows == rows[0]).sum()))
    else:
        getattr(cache, operation)(rows)
    return cache


def take_drafts_back(subject: Subject, ids: Tensor, drafts: Tensor, early: bool) -> Any:
    """A cache that has read ``ids`` [batch, n] and ``drafts`` [batch, k] and dropped the drafts.

    As in assisted decoding, the cache first switches to recording what it drops (``early``: before
    it reads the prompt).  Raises `Missing` where a cache cannot.
    """
    cache = growing(subject)
    if early:
        _record(cache)
    cache = subject(ids, cache=cache, keep=True, states=False).cache
    if not early:
        _record(cache)
    if not _offers(cache, "crop") or not getattr(cache, "is_croppable", True):
        raise Missing("its cache holds a recurrent state, which cannot be taken back")
    caches.appended(subject, drafts, cache)
    try:
        cache.crop(-drafts.shape[1])
    except ValueError as error:  # before 5.15 it says that a window past its end has lost them
        raise Missing(f"its cache cannot drop drafted tokens: {error}") from error
    return cache


def _record(cache: Any) -> None:
    """Make a cache keep what a window or a convolution would drop, where it supports that."""
    if hasattr(cache, "activate_past_recording"):
        cache.activate_past_recording()


def _offers(cache: Any, operation: str) -> bool:
    parts = [
        getattr(cache, name, None) for name in ("self_attention_cache", "cross_attention_cache")
    ]
    layers = [layer for part in (cache, *parts) for layer in getattr(part, "layers", [])]
    return hasattr(cache, operation) and all(hasattr(layer, operation) for layer in layers)
