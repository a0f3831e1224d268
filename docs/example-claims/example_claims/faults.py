"""Faults to inject into a sound model, so that each law is seen to fail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

import assay

LEAK = 0.01
"""Share of another state that gets into one."""


@assay.fault(
    "example-next-token-leaks",
    "after the first block, a state has a little of the next token's",
    caught_by=["EX1", "EX2"],
    needs=["blocks"],
)
def next_token_leaks(bed: assay.Bed) -> None:
    """Without ``at``, the function makes the changes itself."""
    bed.after(bed.subject.blocks[0], _with_next)


def _with_next(forward: assay.Pass, state: Tensor) -> Tensor:
    """``state`` is [batch, positions, hidden]."""
    following = torch.cat([state[:, 1:], torch.zeros_like(state[:, :1])], dim=1)
    return state + LEAK * following


@assay.fault(
    "example-rows-mixed",
    "after the first block, a row has a little of the row before it in the batch",
    caught_by=["EX4"],
    needs=["blocks"],
)
def rows_mixed(bed: assay.Bed) -> None:
    """A batch of one row is as it was."""
    bed.after(bed.subject.blocks[0], lambda _, state: state + LEAK * (state.roll(1, 0) - state))


@assay.fault(
    "example-cache-shifted",
    "cached keys are one position later than their values",
    caught_by=["EX5"],
    needs=["cache", "kv-cache"],
    at=assay.Bed.reading,
)
def cache_shifted(read: assay.CacheRead) -> assay.CacheRead:
    """Keys and values are [batch, heads, positions, width]."""
    return replace(read.past_changed(lambda entries: entries.roll(1, -2)), values=read.values)


@assay.fault(
    "example-embeddings-scaled",
    "embeddings that are given are one per cent larger in the first dimension",
    caught_by=["EX3"],
    needs=["embeddings-alone"],
    at=assay.Bed.arguments,
)
def embeddings_scaled(forward: assay.Pass, arguments: dict[str, Any]) -> None:
    """``arguments`` are those of the model's forward by name, changed in place."""
    if (embeddings := arguments.get("inputs_embeds")) is not None:
        scale = torch.ones_like(embeddings)
        scale[..., 0] += LEAK
        arguments["inputs_embeds"] = embeddings * scale
