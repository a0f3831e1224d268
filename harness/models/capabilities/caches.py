"""Makes caches of every kind, decodes through them in chunks, and reads their contents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hypothesis
import torch
import transformers
from torch import Tensor

from assay.harness.models.capabilities.registry import probe
from assay.harness.models.machine.shortage import pass_on
from assay.harness.models.subject import Subject, compat
from assay.harness.models.subject.memo import memo
from assay.harness.models.subject.roles import STATE_NAMES
from assay.harness.models.subject.rows import Rows
from assay.harness.results.errors import REFUSALS, Missing, Unavailable, first_line

KINDS = ("default", "dynamic", "sliding", "static", "offloaded", "quantised")
"""The kinds that a user can choose; ``default`` is the one that the model makes itself."""

IDEAL = "rounded"
"""Assay's own kind: see `harness.models.capabilities.quantised_caches`."""

UNROUNDED = "quantised, unrounded"
"""The library's quantised cache, with a backend that rounds nothing (`quantised_caches`)."""


def make(subject: Subject, kind: str, batch: int, length: int) -> Any:
    """A fresh cache of ``kind`` for ``batch`` rows of up to ``length`` tokens.

    None for ``default``.  A static one has no more room than the model can use (`most_keys`).
    Raises `Missing` where the model or this version of transformers has no such cache.
    """
    if kind == "default":
        return None
    if subject.cache_argument is None or subject.cache_argument in STATE_NAMES:
        raise Missing("the model takes no cache of keys and values")
    compat.require_cache_objects(subject.model)
    config = subject.config
    try:
        if subject.is_encoder_decoder:
            return _for_encoder_decoder(subject, kind, batch, length)
        if kind == IDEAL:
            from assay.harness.models.capabilities.quantised_caches import RoundedCache

            return RoundedCache()
        if kind == "dynamic":
            _require_keys_only(subject)
            return transformers.DynamicCache()
        if kind == UNROUNDED:
            from assay.harness.models.capabilities.quantised_caches import unrounded

            _require_keys_only(subject)
            return unrounded()
        if kind == "sliding":
            _require_sliding(subject)
            return compat.configured_cache(config)
        if kind == "static":
            _require_static(subject)
            room = min(length, most_keys(subject) or length)
            return compat.static_cache(subject.model, config, batch, room)
        if kind == "offloaded":
            _require_accelerator(subject)
            require_common_kind(subject)
            return compat.offloaded_cache(config)
        if kind == "quantised":
            require_common_kind(subject)
            return transformers.QuantizedCache(backend="fp8", config=config)
    except (TypeError, ValueError, AttributeError, ImportError, LookupError) as error:
        why = first_line(error)
        if isinstance(error, LookupError):
            why = f"it knows no {why}"
        raise Missing(f"this version of transformers has no {kind} cache here: {why}") from error
    raise ValueError(f"no cache of kind {kind!r}")


def most_keys(subject: Subject) -> int | None:
    """The most keys that a model's biases by distance cover; None where it does not say.

    MPT's cover ``max_seq_len`` keys (transformers' ``build_mpt_alibi_tensor``), and a static cache
    has a key for each of its positions.
    """
    return subject.config.max_seq_len if subject.config.model_type == "mpt" else None


def require_common_kind(subject: Subject) -> None:
    """Raise `Missing` where the model makes a cache of its own type, not one of the library's."""
    if own := _own_kind(subject):
        raise Missing(f"the model makes a cache of its own type, a {own}")


@memo
def _own_kind(subject: Subject) -> str:
    """The class of the cache that the model makes itself; empty for one of the library's."""
    try:
        cache = subject(subject.content(_one_token(subject)), keep=True, states=False).cache
    except REFUSALS as error:  # a model that breaks on its cache breaks its laws
        pass_on(error)
        return ""
    if cache is None or isinstance(cache, tuple):  # tuples: of models before 4.56
        return ""
    return "" if type(cache).__module__ == transformers.Cache.__module__ else type(cache).__name__


def _one_token(subject: Subject) -> Tensor:
    return torch.zeros((1, 1), dtype=torch.long, device=subject.device)


def _for_encoder_decoder(subject: Subject, kind: str, batch: int, length: int) -> Any:
    """A self-attention cache of ``kind``, with a dynamic cache for the encoder's output."""
    if kind == "dynamic":
        own = transformers.DynamicCache()
    elif kind == "sliding":
        _require_sliding(subject)
        own = compat.configured_cache(subject.config)
    elif kind == "static":
        _require_static(subject)
        own = compat.static_cache(subject.model, subject.config, batch, length)
    elif kind == "offloaded":
        _require_accelerator(subject)
        own = compat.offloaded_cache(subject.config)
    else:
        raise Missing(f"an encoder-decoder's cache is made of two; none is {kind}")
    return transformers.EncoderDecoderCache(own, transformers.DynamicCache())


def _require_sliding(subject: Subject) -> None:
    """Raise `Missing` unless a layer has a sliding window and caches can respect it."""
    if not _slides(subject):
        raise Missing("no layer has a sliding window")
    compat.require_configured_caches()


def _require_accelerator(subject: Subject) -> None:
    """Raise `Unavailable` unless the model is on an accelerator, which keys and values leave."""
    if subject.device.type == "cpu":
        raise Unavailable(
            "offloading moves keys and values off an accelerator; the model is on a processor"
        )


def _require_keys_only(subject: Subject) -> None:
    """Raise `Missing` where the model needs layers that a cache without configuration lacks."""
    cache = compat.configured_cache(subject.config)
    kinds = {type(layer).__name__ for layer in getattr(cache, "layers", ())}
    if ignored := kinds - compat.KEYS_AND_VALUES:
        names = ", ".join(sorted(ignored))
        raise Missing(f"the configuration asks for {names}, which this cache ignores")
    compat.require_room_for_state(subject.model, cache)


def _require_static(subject: Subject) -> None:
    """Raise `Missing` where the library rejects a static cache, or the model has its own kind.

    Until 4.56 models say in a private attribute whether they take one, and `generate` reads it.
    Its successor, ``_can_compile_fullgraph``, is about compiling: it makes nothing reject a static
    cache, or warn of it.
    """
    if getattr(subject.model, "_supports_static_cache", None) is False:
        declaration = "_supports_static_cache = False"
        raise Missing(f"the model declares no support for static caches ({declaration})")
    require_common_kind(subject)


def _slides(subject: Subject) -> bool:
    kinds = getattr(subject.config, "layer_types", None) or []
    windowed = getattr(subject.config, "sliding_window", None) is not None
    return any("sliding" in kind for kind in kinds) if kinds else windowed


def decode(
    subject: Subject,
    ids: Tensor,
    chunks: Sequence[int],
    kind: str = "default",
    stale: bool = False,
    *,
    spare: int = 0,
    cache: Any = None,
    mask: Tensor | None = None,
    positions: Tensor | None = None,
    **options: Any,
) -> Rows:
    """Run ``ids`` [batch, n] chunk by chunk, each on the cache of those before it.

    ``chunks`` sums to n.  With ``stale`` the first chunk is the prompt moved one position to the
    right: a cache shifted by one, for controls.  A static cache has room for n + ``spare`` tokens;
    ``cache`` replaces a fresh one.  ``mask`` [batch, n] or [batch or 1, 1, n, n] and
    ``positions`` [n] or [batch, n] are those of the whole prompt: each chunk gets its part.
    ``options`` go to every forward pass.
    """
    batch, n = ids.shape
    if sum(chunks) != n:
        raise ValueError(f"chunks {list(chunks)} do not sum to {n}")
    cache = make(subject, kind, batch, n + spare) if cache is None else cache
    start, parts = 0, []
    for size in chunks:
        stop = start + size
        chunk = ids[:, start:stop]
        if stale and not start:
            chunk = torch.cat([ids[:, -1:], ids[:, : size - 1]], dim=1)
        part = None
        if mask is not None:
            part = mask[:, :stop] if mask.ndim == 2 else mask[..., start:stop, :stop]
        places = None if positions is None else positions[..., start:stop]
        output = subject(
            chunk, cache=cache, keep=True, states=False, mask=part, positions=places, **options
        )
        cache, start = output.cache, stop
        parts.append(output.rows)
    return Rows.along_positions(parts)


def grown(
    subject: Subject, ids: Tensor, cut: int, kind: str = "default"
) -> tuple[list[Tensor], list[Tensor]]:
    """Keys and values of the first ``cut`` tokens, before and after the rest was appended.

    Two lists of [batch, heads, past, width], tensor by tensor; where a layer keeps only a window,
    the part of the past that both contain.
    """
    batch, n = ids.shape
    cache = make(subject, kind, batch, n)
    cache = subject(ids[:, :cut], cache=cache, keep=True, states=False).cache
    before = [t.clone() for pair in entries(cache) for t in pair]
    cache = appended(subject, ids[:, cut:], cache)
    after = [t for pair in entries(cache) for t in pair]
    pairs = []
    for old, new in zip(before, after, strict=True):
        # A layer stores the last tokens that fit, at the front of its buffer.
        first_old, first_new = max(0, cut - old.shape[-2]), max(0, n - new.shape[-2])
        first = max(first_old, first_new)
        if first < cut:
            pairs.append(
                (
                    old[..., first - first_old : cut - first_old, :],
                    new[..., first - first_new : cut - first_new, :],
                )
            )
    if not pairs:
        hypothesis.reject()
    return [old for old, _ in pairs], [new for _, new in pairs]


def appended(subject: Subject, ids: Tensor, cache: Any) -> Any:
    """``cache`` after ``ids`` [batch, n], read in one pass if the model can do so."""
    chunks = [ids] if "chunks-beside-cache" in probe(subject) else ids.split(1, dim=1)
    for chunk in chunks:
        cache = subject(chunk, cache=cache, keep=True, states=False).cache
    return cache


def entries(cache: Any) -> list[tuple[Tensor, Tensor]]:
    """The (keys, values) [batch, heads, past, width] of every layer; empty for a recurrence.

    Layers without keys of their own are left out; an encoder-decoder gives its self-attention.
    """
    own = getattr(cache, "self_attention_cache", cache)
    if hasattr(own, "layers"):
        pairs = [(getattr(x, "keys", None), getattr(x, "values", None)) for x in own.layers]
    elif hasattr(own, "key_cache"):  # transformers before 4.54
        pairs = list(zip(own.key_cache, own.value_cache, strict=True))
    else:
        return []
    return [(k, v) for k, v in pairs if torch.is_tensor(k) and torch.is_tensor(v) and k.numel()]
