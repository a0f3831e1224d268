"""Runs the plain path of a law on the model, in float64, and as other machines may round it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from assay.harness.models.rounding import Rounding
from assay.harness.models.rows import Rows

MACHINES = 8
"""Emulated roundings of the plain path before a law is refuted."""


@dataclass(frozen=True)
class Reference:
    """The plain path's rows on the subject (``plain``) and in float64 (``oracle``).

    ``elsewhere`` returns the plain path's rows as other machines may round them, if the path can
    run again (`run_elsewhere`).
    """

    plain: Rows
    oracle: Rows
    elsewhere: Callable[[], Sequence[Rows]] = tuple

    def map(self, change: Callable[[Rows], Rows]) -> Reference:
        """Apply the same change to all rows."""
        elsewhere = self.elsewhere
        return Reference(
            change(self.plain), change(self.oracle), lambda: [change(r) for r in elsewhere()]
        )

    def at(self, index: slice | Tensor | list[int]) -> Reference:
        """The positions that ``index`` selects."""
        return self.map(lambda rows: rows.at(index))


def run_elsewhere(plain: Callable[[], Rows]) -> Callable[[], Sequence[Rows]]:
    """``plain`` under `MACHINES` emulated roundings (`harness.models.rounding`), run at the first
    call.
    """

    @functools.cache
    def rounded() -> list[Rows]:
        rows = []
        for seed in range(MACHINES):
            with Rounding(seed):
                rows.append(plain())
        return rows

    return rounded
