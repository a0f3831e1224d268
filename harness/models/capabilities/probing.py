"""Tools of the probes: a prompt, a pass, and whether two outputs differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from assay.harness.models.rows import Rows
from assay.harness.models.subject import Subject
from assay.harness.models.tolerances import TOLERANCES, distance
from assay.harness.results.errors import REFUSALS, Missing, first_line

VISIBLE = 1e-3
"""A relative change that a probe takes for an effect: far above noise in float32."""

EXACT = 1e-9
"""A relative change that is an effect in float64: far above noise there."""

ABOVE_NOISE = 3
"""Times the floor of the dtype's tolerance that an effect is at least: in bfloat16, 0.09."""

PROBE = 6
"""Tokens in a probe's prompt (fewer where the context is shorter)."""


def prompt(subject: Subject, batch: int = 1) -> Tensor:
    """Distinct ids [batch, n] spread over the vocabulary, no special ones at the start."""
    n = min(PROBE, subject.context or PROBE)
    ids = torch.arange(batch * n, device=subject.device).reshape(batch, n)
    return subject.content(ids * 7 + subject.vocabulary // 3)


def visible(subject: Subject) -> float:
    """The relative change that a probe of ``subject`` takes for an effect, and not for noise.

    In 16 bits two ways of computing the same differ by more than `VISIBLE`, one way on one
    processor and another way on the next.
    """
    return max(VISIBLE, ABOVE_NOISE * TOLERANCES[subject.dtype].floor)


def changes(subject: Subject, one: Tensor, other: Tensor) -> bool:
    """Whether two results of ``subject`` differ by an effect, and not by noise."""
    return bool(distance(one, other).max() > visible(subject))


def affects(subject: Subject, results: Callable[[Subject], tuple[Tensor, Tensor]]) -> bool:
    """Whether the two results of ``subject`` differ by an effect, however small it is.

    One that the subject's dtype cannot tell from noise is looked for in its float64 copy.
    """
    if changes(subject, *results(subject)):
        return True
    try:
        exact = subject.oracle
    except Missing:
        return False
    return bool(distance(*results(exact)).max() > EXACT)


def agree(subject: Subject, one: Rows, other: Rows) -> bool:
    """Whether two passes gave rows of one shape without an effect that a probe would see."""
    names = [name for name in one.tensors if name != "router gap"]
    pairs = [(one[name], other[name]) for name in names]
    return all(a.shape == b.shape and not changes(subject, a, b) for a, b in pairs)


def attempt(subject: Subject, what: str, **arguments: Any) -> Rows:
    """Run the subject; any refusal of the model's is a missing capability, in its own words.

    The kind of error is named where it is not one that a model refuses by: it may have broken.
    """
    try:
        return subject.rows(**arguments)
    except REFUSALS as error:
        said = first_line(error)
        if isinstance(error, TypeError | AttributeError | LookupError):
            said = f"{type(error).__name__}: {said}"
        raise Missing(f"the model does not take {what}: {said}") from error


def first_output(rows: Rows) -> Tensor:
    """The deepest tensor: logits, or the last states."""
    return [tensor for name, tensor in rows.tensors.items() if name != "router gap"][-1]


def embedded(subject: Subject, ids: Tensor) -> Tensor:
    """What goes into the first block [batch, n, features]; `Missing` where it cannot be seen."""
    try:
        states = subject.block_output(0, ids)
    except LookupError as error:
        first = subject.rows(ids).tensors.get("state 0")
        if first is None:
            raise Missing(str(error)) from error
        return first
    return states
