"""The plain way of computing something: on the subject, in float64, and as others round."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torch import Tensor

from harness.rounding import Rounding
from harness.rows import Rows

MACHINES = 8
"""Roundings of the plain path that are tried before a law is said to be broken."""


@dataclass(frozen=True)
class Reference:
    """The plain path's rows on the subject and in float64, and how far apart they are.

    ``once_more`` runs the plain path on the subject again, where that can be done.
    """

    plain: Rows
    oracle: Rows
    once_more: Callable[[], Rows] | None = None

    def map(self, change: Callable[[Rows], Rows]) -> Reference:
        """The same change on both sides."""
        again = self.once_more
        changed = None if again is None else lambda: change(again())
        return Reference(change(self.plain), change(self.oracle), changed)

    def elsewhere(self) -> Iterator[Rows]:
        """The plain path's rows as other machines may round them (`harness.rounding`)."""
        if self.once_more is None:
            return
        for seed in range(MACHINES):
            with Rounding(seed):
                yield self.once_more()

    def at(self, index: slice | Tensor | list[int]) -> Reference:
        """The positions that ``index`` selects."""
        return self.map(lambda rows: rows.at(index))
