"""Reads what a forward pass returns: an output of transformers, a dict, a tuple or a tensor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

ROWS = 3
"""Axes of logits and states: [batch, n, features]."""


def mapping(output: Any, batch: int, n: int) -> Mapping[str, Any]:
    """What a pass over ids [batch, n] returned, by the names that transformers gives it.

    The first tensor of a tuple with a row for each token is the logits.
    """
    if isinstance(output, Mapping):
        return output
    if torch.is_tensor(output):
        return {"logits": output}
    if is_dataclass(output) and not isinstance(output, type):
        return {field.name: getattr(output, field.name) for field in fields(output)}
    if isinstance(output, tuple) and hasattr(output, "_fields"):
        return dict(zip(output._fields, output, strict=True))
    if isinstance(output, tuple | list):
        by_row = (each for each in output if has_rows(each, batch, n))
        return {"logits": first} if (first := next(by_row, None)) is not None else {}
    return vars(output) if hasattr(output, "__dict__") else {}


def tensors(output: Any, batch: int, n: int) -> dict[str, Tensor]:
    """The tensors of `mapping` that have a row of floats for each of [batch, n] tokens."""
    named = mapping(output, batch, n).items()
    return {name: value for name, value in named if has_rows(value, batch, n)}


def has_rows(value: Any, batch: int, n: int) -> bool:
    """Whether ``value`` is a tensor of floats [batch, n, features]."""
    if not torch.is_tensor(value) or value.ndim != ROWS or not value.is_floating_point():
        return False
    return tuple(value.shape[:2]) == (batch, n)


def described(output: Any) -> str:
    """What was returned, in words, for a message."""
    if torch.is_tensor(output):
        return f"a tensor {[*output.shape]} of {output.dtype}"
    if isinstance(output, Mapping):
        return f"a mapping with {', '.join(map(str, output)) or 'nothing'}"
    if isinstance(output, tuple | list):
        return f"a {type(output).__name__} of {', '.join(map(described, output)) or 'nothing'}"
    return f"a {type(output).__name__}"
