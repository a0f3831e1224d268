"""A descent of a few rows on a tiny model, and parts of it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from assay.harness.inversion import Inversion, Rule, Target, invert, start
from assay.harness.models.reference.tolerances import TOLERANCES, distance
from assay.harness.models.subject import Subject
from assay.harness.tests.support.toys import prompt, toy

ROWS = 5
RULE = Rule(20, schedule="constant", every=5)
FAST = Rule(40, "adam", "l2")


def task(rows: int = ROWS) -> tuple:
    """What `descend` takes, in float64: every row starts off and falls by a rate of its own."""
    subject, target = toy("gpt2", "float64"), Target(1)
    generator = torch.Generator().manual_seed(1)
    normal = torch.randn(rows, 5, 32, generator=generator, dtype=torch.float64)
    wanted, begin = target.output(subject, prompt(subject, 5, rows)), start.scaled(subject, normal)
    unit = start.unit(subject, target, wanted, begin, RULE)
    rates = 0.2 * unit * torch.linspace(0.5, 1, rows, dtype=torch.float64)
    return subject, target, wanted, begin, rates


def some(parts: tuple, rows: list[int]) -> tuple:
    """The task of these ``rows`` alone."""
    return (*parts[:2], *(each[rows] for each in parts[2:]))


def same(one: Tensor, other: Tensor) -> bool:
    """Whether they differ by rounding only; NaN is NaN."""
    return torch.allclose(one, other, rtol=1e-9, atol=1e-9, equal_nan=True)


def inversion_by(
    method: str, subject: Subject, target: Target, ids: Tensor, **how: Any
) -> Inversion:
    """What ``method`` recovers of ``ids`` [batch, n] from the target's output."""
    return invert(subject, target, target.output(subject, ids), method, **{"rule": FAST, **how})


def same_output(one: Tensor, other: Tensor) -> bool:
    """Whether two outputs [batch, n, features] are the same up to rounding."""
    assert one.shape == other.shape
    return bool((distance(one, other) <= TOLERANCES[other.dtype].floor).all())
