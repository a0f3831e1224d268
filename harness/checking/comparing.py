"""Compares rows with a reference: how far they are off, what is allowed, and which rows count."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.harness.checking import sensitivity
from assay.harness.checking.reference import Reference
from assay.harness.models.reference.tolerances import (
    ROUTER_GAP,
    Distance,
    Tolerance,
    farthest,
)
from assay.harness.models.subject.rows import Rows
from assay.harness.results.verdicts import margin

BY_NEAR_TIES = "every row is routed to experts by near-ties"
BY_ROUNDING = "rounding to 16 bits alone moves every row far, or chooses its experts or keys"


class Unsettled(Exception):
    """Why an example does not count: it tests nothing, or nothing can be compared there, because
    an MoE model routes every row by near-ties or every number is NaN on both sides.
    """


@dataclass(frozen=True)
class Comparison:
    """Compares rows of a model in ``dtype`` with its reference, within ``tolerance``.

    ``wide`` says that emulated rounding is like a machine's; ``emulated``, that the plain path's
    rows on other machines count as well.
    """

    tolerance: Tolerance
    dtype: torch.dtype
    wide: bool
    emulated: bool = False

    @property
    def gap(self) -> float:
        """Experts chosen by less are near-tied."""
        return ROUTER_GAP * self.tolerance.floor

    @property
    def _settling(self) -> tuple[float, float, bool]:
        """The arguments of `Reference.row_mask`."""
        most = math.inf if self.wide else self.tolerance.largest
        return self.gap, most, self.emulated and not self.wide

    def row_mask(self, expected: Reference) -> Tensor | None:
        """The rows that count (`Reference.row_mask`); None where all do."""
        return expected.row_mask(*self._settling)

    def left_out(self, expected: Reference) -> int:
        """How many rows do not count although no near-tie decides them: 0 but in 16 bits."""
        mask, clear = self.row_mask(expected), expected.oracle.row_mask(self.gap)
        if mask is None:
            return 0
        return int((~mask if clear is None else clear & ~mask).sum())

    def errors(self, expected: Reference) -> dict[str, Distance]:
        """How far the plain path is off, by tensor (`Reference.errors`)."""
        return expected.errors(*self._settling)

    def worst(self, expected: Reference, observed: Rows) -> tuple[Distance, float]:
        """The distance with the least margin, of a farthest or median row, and its bound.

        Raises `Unsettled` where nothing can be compared.
        """
        tolerance, observed = self.tolerance, shared(observed, expected)
        mask = self.row_mask(expected)
        if mask is not None and not bool(mask.any()):
            raise Unsettled(BY_NEAR_TIES if self.wide else BY_ROUNDING)
        if expected.fault:
            raise Unsettled(expected.fault)
        least = torch.finfo(self.dtype).tiny
        for name, largest in expected.largest.items():
            if 0.0 < largest < least:
                raise Unsettled(f"{name} are too small for {self.dtype}, which underflows")
        plain = self.errors(expected)
        for rows in expected.elsewhere() if self.emulated and self.wide else ():
            other = farthest(rows.only(*plain), expected.oracle, mask)
            plain = {name: plain[name].largest(other[name]) for name in plain}
        moved = self._moved(expected, mask)
        distances = farthest(observed, expected.oracle, mask)
        pairs = []
        for name, d in distances.items():
            own = moved.get(name, Distance(0.0, typical=0.0))
            allowed = max(tolerance.allowed(plain[name].error), min(own.error, tolerance.largest))
            pairs.append((d, allowed))
            allowed = tolerance.allowed_typically(plain[name].typical)
            if math.isfinite(allowed):
                allowed = max(allowed, min(own.typical, tolerance.largest))
                where = (f"{name} in the median row; farthest", d.row, d.position)
                pairs.append((Distance(d.typical, *where), allowed))
        return min(pairs, key=lambda pair: margin(pair[0].error, pair[1]))

    def _moved(self, expected: Reference, mask: Tensor | None) -> dict[str, Distance]:
        """How far emulated rounding moves the path that is examined, by tensor, in 16 bits."""
        moved: dict[str, Distance] = {}
        for rows in expected.moved() if self.emulated and not self.wide else ():
            for name, far in farthest(rows, expected.oracle, mask).items():
                moved[name] = far.largest(moved.get(name, far))
        return moved

    def extent(self, expected: Reference, observed: Rows) -> str:
        """Which rows or states are wrong where others are right, in words (`diagnosis.extent`)."""
        from assay.harness.checking import diagnosis  # only a broken law needs it

        rows, plain = shared(observed, expected), self.errors(expected)
        allowed = {
            name: self.tolerance.allowed(plain[name].error)
            for name in rows.tensors
            if name in plain
        }
        return diagnosis.extent(rows, expected.oracle, allowed, self.row_mask(expected))

    def smallest_leak(self, expected: Reference, damaged: Rows, goal: float) -> float:
        """The smallest leak towards the ``damaged`` rows that is rejected in the plain rows
        (`sensitivity.smallest_leak`).
        """
        exact = expected.oracle
        if (mask := self.row_mask(expected)) is not None:
            gaps = exact.tensors.get("router gap", torch.ones((*mask.shape, 1)))
            gaps = torch.where(mask[..., None], gaps.to(mask.device), 0.0)
            exact = Rows({**exact.tensors, "router gap": gaps})

        @functools.cache
        def few(*names: str) -> Reference:
            router = ["router gap"] if "router gap" in exact.tensors else []
            return Reference(
                expected.plain.only(*names),
                exact.only(*names, *router),
                lambda: [rows.only(*names) for rows in expected.elsewhere()],
                lambda: [rows.only(*names) for rows in expected.moved()],
            )

        def rejects(rows: Rows) -> bool:
            worst, allowed = self.worst(few(*rows.tensors), rows)
            return beyond(worst.error, allowed)

        return sensitivity.smallest_leak(shared(expected.plain, expected), damaged, rejects, goal)

    def noise(self, expected: Reference) -> float:
        """How far rounding alone moves the plain path, at most."""
        errors = self.errors(expected)
        names = shared(expected.plain, expected).tensors
        return max(errors[name].error for name in names if name in errors)


def shared(observed: Rows, expected: Reference) -> Rows:
    """The tensors of ``observed`` that both sides of the reference have.

    A model that pads some prompts by itself returns no states for them
    (`models.subject.Output.pooled`).  T5 Gemma returns its last one unasked, which
    `generate` leaves out.

    Raises ValueError where they have nothing in common.
    """
    both = expected.oracle.tensors.keys() & (expected.plain.tensors.keys() | {"router gap"})
    names = [name for name in observed.tensors if name in both]
    if all(name == "router gap" for name in names):
        have = ", ".join(observed.tensors), ", ".join(expected.oracle.tensors)
        raise ValueError(f"nothing to compare: {have[0]} against {have[1]}")
    return observed.only(*names)


def beyond(observed: float, allowed: float) -> bool:
    """Whether ``observed`` breaks the bound; a number that is not finite always does."""
    return not (math.isfinite(observed) and observed <= allowed)
