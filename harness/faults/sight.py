"""Faults of what a position attends to: the future, a window, other packed sequences."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from assay.harness.faults import anatomy
from assay.harness.faults.bed import Bed
from assay.harness.faults.calls import AttentionCall, Pass
from assay.harness.faults.catalogue import FAR, fault
from assay.harness.faults.spots import every_block, first_block, last_block, sdpa
from assay.harness.models.capabilities.probing import PROBE
from assay.harness.models.subject import masks, roles
from assay.harness.models.subject.roles import Role

LEAK = 0.05
"""Share of a position that leaks into one that must not see it."""

CROP = 12
"""First position at which a fault that needs some length shows."""

SHORT = PROBE
"""The same, where prompts are no longer than a window: just past the capabilities' probes."""


def _next_leaks(forward: Pass, state: Tensor, first: int = 0) -> Tensor:
    """Add part of the next position to each from index ``first`` on: [rows, n, width]."""
    later = torch.cat([state[:, 1:], state[:, -1:] * 0], dim=1)
    return state + LEAK * later * (forward.indices(state) >= first)[None, :, None]


fault(
    "future-seen-by-one",
    "every position sees the next one",
    caught_by=["C1"],
    needs=["causal", "blocks"],
    at=every_block,
)(_next_leaks)


fault(
    "future-seen-in-one-layer",
    "in the last layer alone, every position sees the next one",
    caught_by=["C1"],
    needs=["causal", "blocks", "several layers"],
    at=last_block,
)(_next_leaks)


@fault(
    "future-seen-in-one-head",
    "in one head of one layer, every position sees the next one",
    caught_by=["C1"],
    needs=["causal", "head projection"],
)
def _leak_in_one_head(bed: Bed) -> None:
    mixer = anatomy.mixers(bed.subject)[0]
    bed.before(anatomy.projection(bed.subject, mixer), _one_head_leaks)


def _one_head_leaks(
    forward: Pass, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, ...] | None:
    states = args[0]
    if states.ndim != 3 or states.shape[1] != forward.new:
        return None
    width = max(1, states.shape[-1] // 4)
    head = states[..., :width]
    later = torch.cat([head[:, 1:], head[:, -1:] * 0], dim=1)
    mixed = torch.cat([head + LEAK * later, states[..., width:]], dim=-1)
    return (mixed, *args[1:]), kwargs


@fault(
    "future-seen-past-a-length",
    f"from position {CROP} on, every position sees the next one",
    caught_by=["C1"],
    needs=["causal", "blocks"],
)
def _leak_past_a_length(bed: Bed) -> None:
    first_block(bed, partial(_next_leaks, first=CROP))


@fault(
    "future-seen-far-on",
    f"from position {FAR} on, every position sees the next one",
    caught_by=["C1"],
    needs=["causal", "blocks", "far prompts"],
)
def _leak_far_on(bed: Bed) -> None:
    first_block(bed, partial(_next_leaks, first=FAR))


@fault(
    "future-seen-through-a-mean",
    "a thousandth of the mean over all positions is added to each",
    caught_by=["C1"],
    needs=["causal", "blocks"],
    at=first_block,
)
def _mean_leaks(forward: Pass, state: Tensor) -> Tensor:
    return state + 1e-3 * state.mean(dim=1, keepdim=True)


@fault(
    "mask-dropped-under-sdpa",
    "attention by sdpa leaves the causal mask out",
    caught_by=["C1"],
    needs=["causal", "sdpa"],
    at=sdpa,
)
def _without_mask(call: AttentionCall) -> Any:
    shape = 1, 1, call.query.shape[-2], call.key.shape[-2]
    everything = torch.ones(shape, dtype=torch.bool, device=call.query.device)
    return call.attend(mask=everything, is_causal=False)


@fault(
    "logits-depend-on-length",
    "what comes out is scaled by the length of the prompt, by a thousandth per token",
    caught_by=["C6", "C1"],
    needs=["causal", "blocks"],
    at=last_block,
)
def _by_length(forward: Pass, state: Tensor) -> Tensor:
    # Another direction than the state's own: a norm would remove a factor.
    return state + 1e-3 * (forward.past + forward.new) * state.roll(1, -1)


fault(
    "places-mixed-in-an-encoder",
    "in the encoder, each row gets part of the next row in the prompt, regardless of position_ids",
    caught_by=["A6"],
    needs=["bidirectional", "position-ids", "blocks"],
    at=first_block,
)(_next_leaks)


@fault(
    "packed-by-positions",
    "positions that do not rise by one hide tokens from each other, in spite of an explicit mask",
    caught_by=["A5"],
    needs=["causal", "position-ids", "mask-4d"],
    at=Bed.arguments,
)
def _packed(forward: Pass, kwargs: dict[str, Any]) -> None:
    name, positions = forward.bound[Role.MASK], forward.positions
    mask = kwargs.get(name)
    if not isinstance(mask, Tensor) or mask.ndim != 4 or positions is None:
        return
    breaks = torch.nn.functional.pad((positions.diff(dim=-1) != 1).long(), (1, 0))
    sequence = breaks.cumsum(-1)
    other = sequence[:, None, :, None] != sequence[:, None, None, :]
    if mask.shape[-1] == other.shape[-1] and mask.shape[-2] == other.shape[-2]:
        kwargs[name] = mask.masked_fill(other, torch.finfo(mask.dtype).min)


@fault(
    "given-mask-ignored-past-a-length",
    f"of an explicit mask the positions from {SHORT} on are ignored: they see everything",
    caught_by=["A5", "C6"],
    needs=["causal", "mask-4d", "attention-only"],
    at=Bed.arguments,
)
def _unmasked_past_a_length(forward: Pass, kwargs: dict[str, Any]) -> None:
    name = _mask_name(kwargs)
    if name is not None:
        mask = kwargs[name].clone()
        mask[..., SHORT:, :] = 0.0
        kwargs[name] = mask


def _mask_name(kwargs: dict[str, Any]) -> str | None:
    """The argument that has an additive 4-D mask, if one has."""
    names = roles.spellings(Role.MASK)
    matches = [n for n in names if isinstance(kwargs.get(n), Tensor) and kwargs[n].ndim == 4]
    return matches[0] if matches else None


@fault(
    "given-mask-shifted-when-cached",
    "with a cache, an explicit mask is read one key too early",
    caught_by=["C6"],
    needs=["causal", "mask-4d", "attention-only", "cache"],
    at=Bed.arguments,
)
def _mask_shifted(forward: Pass, kwargs: dict[str, Any]) -> None:
    name = _mask_name(kwargs)
    if name is not None and forward.cached:
        kwargs[name] = kwargs[name].roll(1, -1)


@fault(
    "window-off-by-one-when-cached",
    "with a past, the window of attention is one token shorter",
    caught_by=["C2"],
    needs=["window", "sdpa", "cache"],
    at=sdpa,
)
def _oldest_hidden_when_cached(call: AttentionCall) -> Any:
    return _oldest_hidden(call) if call.forward.cached else call.attend()


@fault(
    "window-off-by-one-under-sdpa",
    "attention by sdpa has a window one token shorter than that by other implementations",
    caught_by=["C8"],
    needs=["window", "sdpa"],
    at=sdpa,
)
def _oldest_hidden(call: AttentionCall) -> Any:
    """Hide the oldest key from every query that sees a whole window."""
    query, mask = call.query, call.mask
    n, keys = query.shape[-2], call.key.shape[-2]
    if isinstance(mask, Tensor):
        visible = mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2
        visible = visible[..., :keys]
    else:
        visible = masks.causal(keys, query.dtype, query.device)[..., keys - n :, :] == 0
    whole = visible.sum(-1, keepdim=True) >= (call.forward.window or 0)
    oldest = (visible.long().cumsum(-1) == 1) & visible
    return call.attend(mask=visible & ~(oldest & whole), is_causal=False)


@fault(
    "window-missing-under-eager",
    "eager attention has no window: every query sees all keys before it",
    caught_by=["C8"],
    needs=["causal", "window", "sdpa"],
)
def _unwindowed(bed: Bed) -> None:
    for mixer in anatomy.mixers(bed.subject):
        bed.before(mixer, partial(_all_keys, model=bed.model))


def _all_keys(
    forward: Pass, args: tuple[Any, ...], kwargs: dict[str, Any], model: Any
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    name = roles.name_in(kwargs, Role.MASK)
    mask = None if name is None else kwargs[name]
    eager = model.config.get_text_config(decoder=True)._attn_implementation == "eager"
    if not eager or forward.cached or not isinstance(mask, Tensor) or mask.ndim != 4:
        return None
    whole = masks.causal(mask.shape[-1], mask.dtype, mask.device)[..., -mask.shape[-2] :, :]
    return args, {**kwargs, str(name): whole.expand_as(mask)}
