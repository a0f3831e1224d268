"""The tolerance table, and the calibration by a float64 run of the same model.

A path may differ from the float64 reference by ``factor`` times the plain path's error, plus
``floor`` (DESIGN, 'Tolerance is calibrated, not guessed').  Errors are relative, row by row:
‖x - exact‖₂ / ‖exact‖₂ over the features of one position.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from assay.harness.models.subject.rows import Rows


@dataclass(frozen=True)
class Tolerance:
    """Allowed relative error: ``factor`` × the plain path's error + ``floor``, ``most`` at most.

    Without ``most`` a wrong plain path would excuse every other.  With ``typical`` (a factor and a
    floor), the median row must also stay within that bound: one row that rounding moves far widens
    the bound of the worst row for all, and a small error in every row would hide under it.
    ``sees`` is the relative leak that a law must detect within this bound: None for that of the
    dtype (`harness.checking.sensitivity`), infinite where it is only reported.
    """

    factor: float
    floor: float
    most: float
    typical: tuple[float, float] | None = None
    sees: float | None = None

    def allowed(self, plain_error: float) -> float:
        """The bound for a path where the plain path's error is ``plain_error``."""
        return min(self.factor * plain_error + self.floor, self.most)

    @property
    def largest(self) -> float:
        """The largest error of the plain path that does not allow more than ``most``."""
        return (self.most - self.floor) / self.factor

    def is_capped(self, plain_error: float) -> bool:
        """Whether the plain path's error alone would allow more than ``most``."""
        return plain_error > self.largest

    def allowed_typically(self, plain_error: float) -> float:
        """The bound of the median row where the plain path's median row is off by ``plain_error``.

        Infinite without a median (too few rows) or without such a bound.
        """
        if self.typical is None or math.isnan(plain_error):
            return math.inf
        factor, floor = self.typical
        return min(factor * plain_error + floor, self.most)


TOLERANCES = {
    torch.float64: Tolerance(factor=8.0, floor=1e-12, most=1e-6),
    torch.float32: Tolerance(factor=6.0, floor=4e-6, most=1e-2, typical=(4.0, 1e-6)),
    torch.float16: Tolerance(factor=4.0, floor=4e-3, most=0.25, typical=(3.0, 5e-4)),
    torch.bfloat16: Tolerance(factor=4.0, floor=3e-2, most=0.5, typical=(3.0, 4e-3)),
}
"""Floors are some units in the last place through a few blocks; 2e-5 must show in float32."""

EQUAL_RUNS = {
    torch.float64: Tolerance(factor=4.0, floor=1e-14, most=1e-6),
    torch.float32: Tolerance(factor=4.0, floor=1e-6, most=1e-2),
    torch.float16: Tolerance(factor=4.0, floor=6e-5, most=0.25),
    torch.bfloat16: Tolerance(factor=4.0, floor=5e-4, most=0.5),
}
"""For two passes of one shape, relative to the difference of two equal runs, which is mostly 0.

Floors are a few units in the last place of float32 and float64, and a sixteenth of one in 16 bits:
there one element rounded differently makes all later rows differ by more than that.
"""

QUANTISED = Tolerance(factor=4.0, floor=0.02, most=math.inf, sees=math.inf)
"""For 8-bit caches, relative to the error of an ideal one (`quantised_caches.RoundedCache`).

The ideal one is Assay's own, so it needs no limit; it loses much where its first token is small.
"""

ROUTER_GAP = 1.0
"""Experts chosen by less than this many floors (in probability) are near-tied: not compared."""

FEW = 4
"""The fewest rows whose median means anything: below, it is a single draw of rounding."""

SMALL_ROW = 1e-3
"""Rows smaller than this share of the mean row are measured against that share, not themselves."""


@dataclass(frozen=True)
class Distance:
    """The worst row: its relative error, and its tensor's name, row and position.

    ``typical`` is the median row's error, NaN for fewer than `FEW` rows.
    """

    error: float
    tensor: str = ""
    row: int = 0
    position: int = 0
    typical: float = math.nan

    def largest(self, other: Distance) -> Distance:
        """The larger of two errors, with the larger median row's error of the two."""
        typical = max(self.typical, other.typical)
        return replace(max(self, other, key=lambda each: each.error), typical=typical)

    @property
    def where(self) -> str:
        """The row in words."""
        return f"{self.tensor}, row {self.row}, position {self.position}"


def distance(
    observed: Tensor,
    exact: Tensor,
    mask: Tensor | None = None,
    sizes: Tensor | None = None,
) -> Tensor:
    """Relative error of every row: [..., features] twice → float64 [...].

    Elements that are NaN on both sides, the same infinity, or the largest number of their dtypes
    (by which some models mask what is no token) are left out.  A row with a number
    that is not finite on one side only is infinitely wrong.  ``mask`` (bool, like the result)
    is false in rows on which the reference itself is undecided; errors are relative to ``sizes``
    (like the result) in place of the rows' own lengths.
    """
    most = torch.finfo(observed.dtype).max
    exact = exact.double()
    observed = observed.to(exact)
    if _within(observed, most) and _within(exact, most):
        if sizes is None:
            sizes = torch.linalg.vector_norm(exact, dim=-1)
        return _relative(observed - exact, sizes, mask)
    finite = exact.abs() < most
    extreme = (observed.abs() == most) & (exact.abs() >= most) & torch.isfinite(exact)
    same = (observed == exact) | (extreme & (observed.sign() == exact.sign()))
    alike = ~finite & (same | (torch.isnan(observed) & torch.isnan(exact)))
    if sizes is None:
        sizes = torch.linalg.vector_norm(torch.where(finite, exact, 0.0), dim=-1)
    return _relative(torch.where(alike, 0.0, observed - exact), sizes, mask)


def _within(tensor: Tensor, most: float) -> bool:
    """Whether every element is finite and smaller than ``most``, read once."""
    if not tensor.numel():
        return True
    least, largest = torch.aminmax(tensor)  # NaN where an element is
    return -most < float(least) and float(largest) < most


def _relative(apart: Tensor, sizes: Tensor, mask: Tensor | None) -> Tensor:
    """The lengths of the rows of ``apart`` relative to ``sizes``; infinite where not a number."""
    size = torch.maximum(sizes, SMALL_ROW * sizes.mean())
    size = size.clamp_min(torch.finfo(torch.float64).tiny)
    error = torch.linalg.vector_norm(apart, dim=-1) / size
    error = torch.where(torch.isnan(error), math.inf, error)
    return error if mask is None else torch.where(mask, error, 0.0)


def incomparable(observed: Rows, exact: Rows) -> tuple[int, bool]:
    """How many rows have a NaN on both sides, and whether no element can be compared."""
    rows, finite = 0, False
    for name, tensor in observed.tensors.items():
        if name == "router gap":
            continue
        if not _within(tensor, math.inf):
            rows += int((torch.isnan(tensor) & torch.isnan(exact[name])).any(-1).sum())
        finite = finite or bool(torch.isfinite(exact[name]).any())
    return rows, not finite


def not_a_reference(plain: Rows, exact: Rows) -> str:
    """The tensor where the model is finite and the float64 copy is not; empty if there is none."""
    for name, tensor in plain.tensors.items():
        if name == "router gap" or _within(exact[name], math.inf):
            continue
        if bool((tensor.isfinite() & ~exact[name].isfinite()).any()):
            return name
    return ""


def worst(errors: Tensor, tensor: str, mask: Tensor | None = None) -> Distance:
    """The largest of the errors [batch, positions] of a tensor, and its row and position.

    ``mask`` (bool, like the errors) is true for the rows that count.
    """
    flat = int(errors.argmax())
    row, position = divmod(flat, errors.shape[-1])
    counted = errors.flatten() if mask is None else errors[mask]
    typical = float(counted.median()) if counted.numel() >= FEW else math.nan
    return Distance(float(errors.flatten()[flat]), tensor, row, position, typical)


def farthest(observed: Rows, exact: Rows, mask: Tensor | None = None) -> dict[str, Distance]:
    """The worst row of every tensor of ``observed``, compared with ``exact``."""
    distances = {}
    for name, tensor in observed.tensors.items():
        if name == "router gap":
            continue
        if tensor.shape != exact[name].shape:
            raise ValueError(f"{name}: {tuple(tensor.shape)} against {tuple(exact[name].shape)}")
        distances[name] = worst(distance(tensor, exact[name], mask), name, mask)
    return distances


PART = 1 << 22
"""Elements that are compared at once."""


def bit_equal(one: Tensor, other: Tensor) -> float:
    """The share of elements whose bits differ: [..] twice → 0 to 1."""
    if one.shape != other.shape:
        return 1.0
    unlike = 0
    # In parts, as comparing takes many bytes for each element.
    parts = one.detach().flatten().split(PART), other.detach().flatten().split(PART)
    for mine, theirs in zip(*parts, strict=True):
        if mine.dtype == theirs.dtype and torch.equal(mine, theirs):  # in one reading
            continue
        both_nan = torch.isnan(mine) & torch.isnan(theirs)
        unlike += int(((mine != theirs) & ~both_nan).count_nonzero())
    return unlike / max(1, one.numel())


def unequal_bits(observed: Rows, expected: Rows) -> float:
    """The largest share of elements of one tensor whose bits differ, of those that both have."""
    names = [name for name in observed.tensors if name in expected.tensors]
    return max(bit_equal(observed[name], expected[name]) for name in names)


def one_bit_off(tensor: Tensor) -> Tensor:
    """The same with its first element moved by one unit in the last place."""
    moved = tensor.detach().clone().contiguous()
    integers = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}
    moved.view(integers[moved.element_size()]).flatten()[:1] ^= 1
    return moved
