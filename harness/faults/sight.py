"""Faults of what a place sees: the future, a window, other packed sequences."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from harness import capabilities, masks
from harness.faults import anatomy
from harness.faults.bed import Bed, Pass
from harness.faults.catalogue import fault

LEAK = 0.05
"""How much of another row gets into one that must not see it."""

CROP = 12
"""Places from which on a fault shows that needs some length."""

SHORT = capabilities.PROBE
"""The same, where prompts are no longer than a window: just past what capabilities look at."""


def _next_leaks(seen: Pass, module: nn.Module, state: Tensor, first: int = 0) -> Tensor:
    """Each row from place ``first`` on has something of the next one: [rows, n, width]."""
    later = torch.cat([state[:, 1:], state[:, -1:] * 0], dim=1)
    return state + LEAK * later * (seen.places(state) >= first)[None, :, None]


@fault(
    "future-seen-by-one",
    "every place sees the one after it",
    caught_by=["C1"],
    needs=["causal", "blocks"],
)
def _(bed: Bed) -> None:
    for block in anatomy.blocks(bed.subject):
        bed.after(block, _next_leaks)


@fault(
    "future-seen-in-one-layer",
    "in the last layer alone, every place sees the one after it",
    caught_by=["C1"],
    needs=["causal", "blocks", "several layers"],
)
def _(bed: Bed) -> None:
    bed.after(anatomy.blocks(bed.subject)[-1], _next_leaks)


@fault(
    "future-seen-in-one-head",
    "in one head of one layer, every place sees the one after it",
    caught_by=["C1"],
    needs=["causal", "head projection"],
)
def _(bed: Bed) -> None:
    mixer = anatomy.mixers(bed.subject)[0]
    bed.before(anatomy.projection(bed.subject, mixer), _one_head_leaks)


def _one_head_leaks(seen: Pass, module: nn.Module, given: tuple, named: dict) -> tuple | None:
    states = given[0]
    if states.ndim != 3 or states.shape[1] != seen.new:
        return None
    width = max(1, states.shape[-1] // 4)
    head = states[..., :width]
    later = torch.cat([head[:, 1:], head[:, -1:] * 0], dim=1)
    mixed = torch.cat([head + LEAK * later, states[..., width:]], dim=-1)
    return (mixed, *given[1:]), named


@fault(
    "future-seen-past-a-length",
    f"from place {CROP} on, every place sees the one after it",
    caught_by=["C1"],
    needs=["causal", "blocks"],
)
def _(bed: Bed) -> None:
    bed.after(anatomy.blocks(bed.subject)[0], _next_leaks, first=CROP)


@fault(
    "future-seen-through-a-mean",
    "a thousandth of the mean over all places gets into every one",
    caught_by=["C1"],
    needs=["causal", "blocks"],
)
def _(bed: Bed) -> None:
    bed.after(anatomy.blocks(bed.subject)[0], _mean_leaks)


def _mean_leaks(seen: Pass, module: nn.Module, state: Tensor) -> Tensor:
    return state + 1e-3 * state.mean(dim=1, keepdim=True)


@fault(
    "mask-dropped-under-sdpa",
    "attention by sdpa leaves the causal mask out",
    caught_by=["C1"],
    needs=["causal", "sdpa"],
)
def _(bed: Bed) -> None:
    bed.attention(anatomy.mixers(bed.subject), "sdpa", _without_mask)


def _without_mask(
    seen: Pass,
    usual: Any,
    module: nn.Module,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Any,
    named: Any,
) -> Any:
    open_ = torch.ones(1, 1, q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device)
    return usual(module, q, k, v, open_, **{**named, "is_causal": False})


@fault(
    "logits-depend-on-length",
    "what comes out is scaled by the length of the prompt, by a thousandth per token",
    caught_by=["C6", "C1"],
    needs=["causal", "blocks"],
)
def _(bed: Bed) -> None:
    bed.after(anatomy.blocks(bed.subject)[-1], _by_length)


def _by_length(seen: Pass, module: nn.Module, state: Tensor) -> Tensor:
    # Another direction than the state's own: a norm would take a factor out again.
    return state + 1e-3 * (seen.past + seen.new) * state.roll(1, -1)


@fault(
    "places-mixed-in-an-encoder",
    "a row of an encoder gets something of the row at the next place, whatever its position",
    caught_by=["A6"],
    needs=["bidirectional", "position-ids", "blocks"],
)
def _(bed: Bed) -> None:
    bed.after(anatomy.blocks(bed.subject)[0], _next_leaks)


@fault(
    "packed-by-positions",
    "positions that do not rise by one hide tokens from each other, in spite of an explicit mask",
    caught_by=["A5"],
    needs=["causal", "position-ids", "mask-4d"],
)
def _(bed: Bed) -> None:
    bed.named(_packed)


def _packed(seen: Pass, model: nn.Module, named: dict) -> None:
    mask, positions = named.get("attention_mask"), seen.positions
    if not isinstance(mask, Tensor) or mask.ndim != 4 or positions is None:
        return
    breaks = torch.nn.functional.pad((positions.diff(dim=-1) != 1).long(), (1, 0))
    sequence = breaks.cumsum(-1)
    other = sequence[:, None, :, None] != sequence[:, None, None, :]
    if mask.shape[-1] == other.shape[-1] and mask.shape[-2] == other.shape[-2]:
        named["attention_mask"] = mask.masked_fill(other, torch.finfo(mask.dtype).min)


@fault(
    "given-mask-ignored-past-a-length",
    f"of an explicit mask the places from {SHORT} on are ignored: they see everything",
    caught_by=["A5", "C6"],
    needs=["causal", "mask-4d", "attention-only"],
)
def _(bed: Bed) -> None:
    bed.named(_unmasked_past_a_length)


def _unmasked_past_a_length(seen: Pass, model: nn.Module, named: dict) -> None:
    name = _mask_name(named)
    if name is not None:
        mask = named[name].clone()
        mask[..., SHORT:, :] = 0.0
        named[name] = mask


def _mask_name(named: dict) -> str | None:
    """Under which name an additive 4-D mask was given, if one was."""
    names = ("attention_mask", "decoder_attention_mask")
    given = [n for n in names if isinstance(named.get(n), Tensor) and named[n].ndim == 4]
    return given[0] if given else None


@fault(
    "given-mask-shifted-when-cached",
    "beside a cache, an explicit mask is read one key too early",
    caught_by=["C6"],
    needs=["causal", "mask-4d", "attention-only", "cache"],
)
def _(bed: Bed) -> None:
    bed.named(_mask_shifted)


def _mask_shifted(seen: Pass, model: nn.Module, named: dict) -> None:
    name = _mask_name(named)
    if name is not None and seen.cached:
        named[name] = named[name].roll(1, -1)


@fault(
    "window-off-by-one-when-cached",
    "with a past, the window of attention is one token shorter",
    caught_by=["C2"],
    needs=["window", "sdpa", "cache"],
)
def _(bed: Bed) -> None:
    modules = anatomy.mixers(bed.subject)
    bed.attention(modules, "sdpa", _oldest_hidden_when_cached)
    for module in modules:
        bed.set(module, "_planted_window", bed.subject.window)


@fault(
    "window-off-by-one-under-sdpa",
    "attention by sdpa has a window one token shorter than that by other implementations",
    caught_by=["C8"],
    needs=["window", "sdpa"],
)
def _(bed: Bed) -> None:
    modules = anatomy.mixers(bed.subject)
    bed.attention(modules, "sdpa", _oldest_hidden)
    for module in modules:
        bed.set(module, "_planted_window", bed.subject.window)


def _oldest_hidden_when_cached(seen: Pass, usual: Any, module: Any, *given: Any) -> Any:
    if not seen.cached:
        query, key, value, mask, named = given
        return usual(module, query, key, value, mask, **named)
    return _oldest_hidden(seen, usual, module, *given)


def _oldest_hidden(
    seen: Pass, usual: Any, module: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any, named: Any
) -> Any:
    """The oldest key of every query that sees a whole window is hidden from it."""
    n, keys = q.shape[-2], k.shape[-2]
    if isinstance(mask, Tensor):
        seen_now = mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2
        seen_now = seen_now[..., :keys]
    else:
        seen_now = masks.causal(keys, q.dtype, q.device)[..., keys - n :, :] == 0
    whole = seen_now.sum(-1, keepdim=True) >= module._planted_window
    oldest = (seen_now.long().cumsum(-1) == 1) & seen_now
    return usual(module, q, k, v, seen_now & ~(oldest & whole), **{**named, "is_causal": False})
