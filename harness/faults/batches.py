"""Faults of batches: visible padding, and rows that affect each other."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from assay.harness.faults.bed import Bed
from assay.harness.faults.calls import AttentionCall, Pass
from assay.harness.faults.catalogue import FAR, fault
from assay.harness.faults.spots import biases, experts, first_block, last_block, sdpa
from assay.harness.models.subject import roles
from assay.harness.models.subject.roles import Role

LEAK = 0.01
"""Share of another row that leaks into one."""


@fault(
    "padding-mask-ignored",
    "tokens that the mask calls padding are seen like others",
    caught_by=["C5"],
    needs=["padding"],
    at=Bed.arguments,
)
def _all_content(forward: Pass, kwargs: dict[str, Any]) -> None:
    for name in roles.spellings(Role.MASK):
        mask = kwargs.get(name)
        if isinstance(mask, Tensor) and mask.ndim == 2:
            kwargs[name] = torch.ones_like(mask)


@fault(
    "padding-mask-ignored-in-a-lone-row",
    "in a batch of one row, tokens that the mask calls padding are seen like others",
    caught_by=["C5"],
    needs=["padding"],
    at=Bed.arguments,
)
def _lone_content(forward: Pass, kwargs: dict[str, Any]) -> None:
    if forward.rows == 1:
        _all_content(forward, kwargs)


@fault(
    "padding-mask-ignored-in-a-wide-batch",
    f"in a batch of more than {FAR} positions, padding is seen like other tokens",
    caught_by=["C5"],
    needs=["padding", "far prompts"],
    at=Bed.arguments,
)
def _wide_content(forward: Pass, kwargs: dict[str, Any]) -> None:
    if forward.new > FAR:
        _all_content(forward, kwargs)


@fault(
    "padding-mask-dropped-under-sdpa",
    "attention by sdpa sees padding like other tokens",
    caught_by=["C5"],
    needs=["padding", "sdpa"],
    at=sdpa,
)
def _one_mask_for_all(call: AttentionCall) -> Any:
    mask = call.mask
    if not isinstance(mask, Tensor) or mask.shape[0] < 2:
        return call.attend()
    return call.attend(mask=mask.amax(0, keepdim=True).expand_as(mask))


@fault(
    "padding-leaks",
    "a little of a row's padding gets into its tokens",
    caught_by=["C5"],
    needs=["padding", "blocks"],
    at=first_block,
)
def _padding_leaks(forward: Pass, state: Tensor) -> Tensor | None:
    if forward.padded is None:
        return None
    padding = forward.padded[..., None].to(state)
    mean = (state * padding).sum(1, keepdim=True) / padding.sum(1, keepdim=True).clamp_min(1)
    return state + LEAK * mean


@fault(
    "nan-in-a-padded-row",
    "padding becomes NaN in the first layer, as do all positions that attend to it",
    caught_by=["C5"],
    needs=["padding", "blocks", "several layers"],
    at=first_block,
)
def _nan_padding(forward: Pass, state: Tensor) -> Tensor | None:
    if forward.padded is None:
        return None
    return state.masked_fill(forward.padded[..., None], math.nan)


@fault(
    "batch-mate-leaks",
    "a little of each row of a batch gets into the next row",
    caught_by=["C5"],
    needs=["padding", "blocks"],
    at=first_block,
)
def _mate_leaks(forward: Pass, state: Tensor) -> Tensor | None:
    return state + LEAK * (state.roll(1, 0) - state) if forward.rows > 1 else None


@fault(
    "batch-size-matters",
    "what comes out depends on the number of rows in the batch",
    caught_by=["C5"],
    needs=["padding", "blocks"],
    at=last_block,
)
def _by_rows(forward: Pass, state: Tensor) -> Tensor:
    return state + 1e-3 * (forward.rows - 1) * state.roll(1, -1)


@fault(
    "states-drawn-at-random",
    "a thousandth of the last block's output is noise, as of dropout left on",
    caught_by=["C6"],
    needs=["repeats", "blocks"],
    at=last_block,
)
def _drawn(forward: Pass, state: Tensor) -> Tensor:
    return state + 1e-3 * state.norm(dim=-1, keepdim=True) * torch.randn_like(state)


@fault(
    "positions-not-shifted-under-padding",
    "positions are counted from the padding, even if others are given",
    caught_by=["C5"],
    needs=["causal", "padding", "position-ids", "learned-positions"],
    at=Bed.arguments,
)
def _counted_from_padding(forward: Pass, kwargs: dict[str, Any]) -> None:
    if forward.padded is not None and forward.positions is not None:
        kwargs[forward.positions_name] = forward.indices(forward.positions)[None].expand(
            forward.rows, -1
        )


@fault(
    "positions-of-the-first-row",
    "every row of a batch is given the positions of the first",
    caught_by=["C5"],
    needs=["causal", "padding", "position-ids"],
    at=Bed.arguments,
)
def _first_rows_positions(forward: Pass, kwargs: dict[str, Any]) -> None:
    if forward.positions is not None and forward.rows > 1:
        kwargs[forward.positions_name] = forward.positions[:1].expand_as(forward.positions)


@fault(
    "alibi-wrong-under-padding",
    "where a batch is padded, the bias by distance is steeper by a tenth",
    caught_by=["C5"],
    needs=["alibi", "padding"],
    at=biases,
)
def _steeper(forward: Pass, bias: Tensor) -> Tensor:
    return bias if forward.padded is None else bias * 1.1


@fault(
    "experts-full",
    "experts serve the first eight tokens of a batch and leave out the others",
    caught_by=["C5", "C1"],
    needs=["experts", "padding"],
    at=experts,
)
def _served(forward: Pass, state: Tensor) -> Tensor:
    number = torch.arange(forward.rows * forward.new, device=state.device)
    return state * (number < 8).to(state).reshape(forward.rows, forward.new, 1)


@fault(
    "experts-chosen-for-a-batch",
    "how much the experts say depends on the mean of the batch",
    caught_by=["C5"],
    needs=["experts", "padding"],
    at=experts,
)
def _by_mean(forward: Pass, state: Tensor) -> Tensor:
    return state * (1 + state.mean(dim=(0, 1), keepdim=True).tanh() / 10)
