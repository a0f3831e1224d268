"""Runs the plain path of a law on the model, in float64, and as other machines may round it."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor

from assay.harness.models.reference.float64 import reference_of
from assay.harness.models.reference.tolerances import Distance, distance, farthest, not_a_reference
from assay.harness.models.subject import Subject, kept_rows
from assay.harness.models.subject.rows import Rows

MACHINES = 8
"""Emulated roundings of the plain path before a law is refuted."""


@dataclass(frozen=True)
class Reference:
    """The plain path's rows on the subject (``plain``) and in float64 (``oracle``).

    ``elsewhere`` returns the plain path's rows as other machines may round them, if the path can
    run again (`run_elsewhere`).  ``moved`` returns the float64 rows as far off as emulated
    rounding moves the rows of the path that is examined (`examining`).
    """

    plain: Rows
    oracle: Rows
    elsewhere: Callable[[], Sequence[Rows]] = tuple
    moved: Callable[[], Sequence[Rows]] = tuple
    _row_masks: dict[tuple[float, float, bool], Tensor | None] = field(
        default_factory=dict, repr=False
    )
    _errors: dict[tuple[float, float, bool], dict[str, Distance]] = field(
        default_factory=dict, repr=False
    )

    def row_mask(
        self, gap: float, most: float = math.inf, elsewhere: bool = False
    ) -> Tensor | None:
        """The rows that count (bool [batch, positions]), or None where all do.

        Experts must be chosen by more than ``gap`` (`Rows.row_mask`), and the plain path be off by
        no more than ``most``.  It is finite in 16 bits, where rounding alone moves some rows of a
        sound model farther than any bound allows: they cannot show whether another path is right.
        With ``elsewhere`` the plain path must be that near on other machines as well, and emulated
        rounding must not move the path that is examined farther.  Where
        experts or keys are chosen, the rows after a row that does not count are left out too,
        since they attend to what rounding chose.
        """
        key = gap, most, elsewhere
        if key not in self._row_masks:
            mask = self.oracle.row_mask(gap)
            chosen = mask is not None
            if math.isfinite(most):
                others = (*self.elsewhere(), *self.moved()) if elsewhere else ()
                for rows in (self.plain, *others):
                    if (lost := _lost(rows, self.oracle, most, chosen)) is not None:
                        mask = ~lost if mask is None else mask & ~lost
            self._row_masks[key] = mask
        return self._row_masks[key]

    def errors(
        self, gap: float, most: float = math.inf, elsewhere: bool = False
    ) -> dict[str, Distance]:
        """How far the plain path is off in the worst row of each tensor, of the settled rows.

        Every comparison asks for it, dozens of them where a law looks for its smallest leak.
        """
        key = gap, most, elsewhere
        if key not in self._errors:
            self._errors[key] = farthest(self.plain, self.oracle, self.row_mask(*key))
        return self._errors[key]

    @functools.cached_property
    def fault(self) -> str:
        """Why it is no reference, in words; empty if it is one."""
        if name := not_a_reference(self.plain, self.oracle):
            return f"the float64 copy gives no numbers where the model does, at {name}"
        return ""

    @functools.cached_property
    def largest(self) -> dict[str, float]:
        """The largest absolute number of each tensor of the reference."""
        return {name: float(t.abs().max()) for name, t in self.oracle.tensors.items()}

    def examining(self, path: Rows, elsewhere: Callable[[], Sequence[Rows]]) -> Reference:
        """The same for a ``path`` that rounds otherwise than the plain one, such as another
        implementation of attention; ``elsewhere`` as of the plain path, but of this one.
        """
        names = [name for name in path.tensors if name in self.oracle.tensors]

        def off(name: str, rows: Rows) -> Tensor:
            exact = self.oracle[name]
            return exact + (rows[name].to(exact) - path[name].to(exact))

        def moved() -> list[Rows]:
            return [Rows({name: off(name, rows) for name in names}) for rows in elsewhere()]

        return Reference(self.plain, self.oracle, self.elsewhere, functools.cache(moved))

    def map(self, change: Callable[[Rows], Rows]) -> Reference:
        """Apply the same change to all rows."""
        elsewhere, moved = self.elsewhere, self.moved
        return Reference(
            change(self.plain),
            change(self.oracle),
            lambda: [change(rows) for rows in elsewhere()],
            lambda: [change(rows) for rows in moved()],
        )

    def at(self, index: slice | Tensor | list[int]) -> Reference:
        """The positions that ``index`` selects."""
        return self.map(lambda rows: rows.at(index))


def _lost(rows: Rows, oracle: Rows, most: float, chosen: bool) -> Tensor | None:
    """The rows that are off by more than ``most`` (bool [batch, positions]), and where experts or
    keys are ``chosen`` all rows after them.  None if tensors differ in their number of rows.

    A row with a number that is not finite on one side only is not left out: it is a fault.
    """
    names = [name for name in rows.tensors if name != "router gap" and name in oracle.tensors]
    errors = [distance(rows[name], oracle[name]) for name in names]
    if len({error.shape for error in errors}) != 1:
        return None
    lost = torch.stack([(error > most) & error.isfinite() for error in errors]).any(0)
    return lost.cummax(-1).values if chosen else lost


def run_both(subject: Subject, plain: Callable[[Subject], Rows], shared: bool) -> Reference:
    """Run ``plain`` on the subject and on its float64 reference.

    On a prompt that laws share its passes are looked up, once computed.
    """

    def run(model: Subject) -> Rows:
        with kept_rows.reused(model) if shared else nullcontext():
            return plain(model)

    # The model first: building its reference takes longer, and fails for some.
    return Reference(
        run(subject), run(reference_of(subject)), run_elsewhere(lambda: plain(subject))
    )


def run_elsewhere(plain: Callable[[], Rows]) -> Callable[[], Sequence[Rows]]:
    """``plain`` under `MACHINES` emulated roundings, run at the first call."""

    @functools.cache
    def rounded() -> list[Rows]:
        from assay.harness.models.reference.rounding import Rounding

        rows = []
        for seed in range(MACHINES):
            with Rounding(seed):
                rows.append(plain())
        return rows

    return rounded
