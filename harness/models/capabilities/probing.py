"""Tools for probes: a prompt, a pass, and whether two outputs differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from assay.harness.models.machine.weights import rounding
from assay.harness.models.reference.float64 import reference_of
from assay.harness.models.reference.slices import Slice, part_of
from assay.harness.models.reference.tolerances import TOLERANCES, distance
from assay.harness.models.subject import Subject
from assay.harness.models.subject.rows import Rows
from assay.harness.results.errors import REFUSALS, Missing, first_line

VISIBLE = 1e-3
"""A relative change that counts as an effect in a probe: far above noise in float32."""

EXACT = 1e-9
"""A relative change that counts as an effect in float64: far above noise there."""

ABOVE_NOISE = 3
"""The smallest effect in units of the floor of the dtype's tolerance: in bfloat16, 0.09."""

PROBE = 6
"""Tokens in a probe's prompt (fewer where the context is shorter)."""


def prompt(subject: Subject, batch: int = 1) -> Tensor:
    """Distinct ids [batch, n] spread over the vocabulary, no special ones at the start."""
    n = min(PROBE, subject.context or PROBE)
    ids = torch.arange(batch * n, device=subject.device).reshape(batch, n)
    return subject.content(ids * 7 + subject.vocabulary // 3)


def visible(subject: Subject) -> float:
    """The relative change above which a probe of ``subject`` counts an effect, not noise.

    In 16 bits two implementations of one result differ by more than `VISIBLE`, and differently on
    each processor.
    """
    return max(VISIBLE, ABOVE_NOISE * TOLERANCES[rounding(subject.model, subject.dtype)].floor)


def changes(subject: Subject, one: Tensor, other: Tensor) -> bool:
    """Whether two results of ``subject`` differ by more than noise."""
    return bool(distance(one, other).max() > visible(subject))


def affects(subject: Subject, results: Callable[[Subject], tuple[Tensor, Tensor]]) -> bool:
    """Whether the two results of ``subject`` differ, by however small an effect.

    The float64 reference (of its slice, where the subject is large) decides where the subject's
    dtype cannot distinguish an effect from noise: ``results`` takes ids of its argument.
    """
    if changes(subject, *results(subject)):
        return True
    part = part_of(subject)
    try:
        exact = reference_of(part.subject if isinstance(part, Slice) else subject)
    except Missing:
        return False
    return bool(distance(*results(exact)).max() > EXACT)


def agree(subject: Subject, one: Rows, other: Rows) -> bool:
    """Whether two passes gave rows of one shape that differ by no more than noise."""
    names = [name for name in one.tensors if name != "router gap"]
    pairs = [(one[name], other[name]) for name in names]
    return all(a.shape == b.shape and not changes(subject, a, b) for a, b in pairs)


def attempt(subject: Subject, what: str, **arguments: Any) -> Rows:
    """Run the subject; if the model rejects the input, raise `Missing` with its message.

    The message names the type of an error that may be a defect rather than a rejection.
    """
    try:
        return subject.rows(**arguments)
    except REFUSALS as error:
        message = first_line(error)
        if isinstance(error, TypeError | AttributeError | LookupError):
            message = f"{type(error).__name__}: {message}"
        raise Missing(f"the model does not take {what}: {message}") from error


def first_output(rows: Rows) -> Tensor:
    """The deepest tensor: logits, or the last states."""
    return [tensor for name, tensor in rows.tensors.items() if name != "router gap"][-1]


def embedded(subject: Subject, ids: Tensor) -> Tensor:
    """The first block's input [batch, n, features]; raises `Missing` where it is not visible."""
    try:
        states = subject.block_output(0, ids)
    except LookupError as error:
        first = subject.rows(ids).tensors.get("state 0")
        if first is None:
            raise Missing(str(error)) from error
        return first
    return states
