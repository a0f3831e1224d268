"""Faults of rotary positions that are scaled for long prompts, and of windows past their size."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from assay.harness.faults import anatomy
from assay.harness.faults.bed import Bed
from assay.harness.faults.calls import AttentionCall, Pass
from assay.harness.faults.catalogue import fault
from assay.harness.faults.spots import sdpa
from assay.harness.models.subject import roles, rotations
from assay.harness.models.subject.roles import Role
from assay.harness.operations import frequencies

NOTE = "positions to rotate by"
"""The note of a pass that keeps the argument of the module that computes angles."""


@fault(
    "scaling-dropped-past-its-length",
    "in passes longer than in training, rotary positions are not scaled",
    caught_by=["A15"],
    needs=["rotary", "scaled-rotation", "halves rotated"],
)
def _drop(bed: Bed) -> None:
    made_for = max(rotations.made_for(bed.subject.config), default=0)
    unscaled = frequencies.of_length(bed.subject, made_for, scaled=False)
    _rotate_by(bed, unscaled, made_for + 1, 1 << 62)


@fault(
    "rotation-switches-late",
    "a pass one token longer than in training is rotated like a shorter one",
    caught_by=["A15"],
    needs=["rotary", "switched-rotation", "halves rotated"],
)
def _late(bed: Bed) -> None:
    switch = rotations.switch(bed.subject.config) or 0
    _rotate_by(bed, frequencies.of_length(bed.subject, switch), switch + 1, switch + 1)


def _rotate_by(bed: Bed, own: frequencies.Rotation, first: int, last: int) -> None:
    """Passes of ``first`` to ``last`` tokens are rotated by ``own`` frequencies."""
    for module in anatomy.angles(bed.subject):
        bed.before(module, _note)
        bed.after_any(module, partial(_rotated, own=own, first=first, last=last))


def _note(forward: Pass, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    positions = roles.value(kwargs, Role.POSITIONS)
    forward.notes[NOTE] = args[1] if positions is None else positions


def _rotated(
    forward: Pass, output: tuple[Tensor, Tensor], own: frequencies.Rotation, first: int, last: int
) -> tuple[Tensor, Tensor] | None:
    positions = forward.notes[NOTE]
    if not first <= int(positions.max()) + 1 <= last:
        return None
    inverse, factor = own
    half = positions[..., None].float() * inverse.to(positions.device)
    angles = torch.cat([half, half], dim=-1)
    cosines, sines = angles.cos() * factor, angles.sin() * factor
    return cosines.to(output[0]), sines.to(output[1])


@fault(
    "window-one-too-long-in-a-pass",
    "without a past, the window of attention is one token longer",
    caught_by=["C2"],
    needs=["window", "sdpa", "cache"],
    at=sdpa,
)
def _one_more(call: AttentionCall) -> Any:
    """Show the key before the oldest one to every query that sees a whole window."""
    mask = call.mask
    if call.forward.cached or not isinstance(mask, Tensor):
        return call.attend()
    visible = mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2
    whole = visible.sum(-1, keepdim=True) == call.forward.window
    oldest = (visible.long().cumsum(-1) == 1) & visible
    before = torch.cat([oldest[..., 1:], torch.zeros_like(oldest[..., :1])], dim=-1)
    return call.attend(mask=visible | (before & whole), is_causal=False)
