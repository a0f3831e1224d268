"""The draws of a finding so far: series of values by name, plots and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from assay.harness.results.arrays import Array, Plot

UNDEFINED = 0.01
"""The largest share of draws without a value (0 / 0) with which a finding is decided."""


@dataclass
class Sample:
    """The draws of one finding so far: a series of values for each name.

    ``why`` is the reason that a refuted finding gives, such as the first draw that breaks it.
    """

    series: dict[str, list[Array]] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    plots: dict[str, Plot] = field(default_factory=dict)
    why: str = ""

    def add(self, **series: Tensor | ArrayLike) -> None:
        """Add values of some draws: arrays or tensors, [draws] or [draws, columns], by name.

        ``effect`` is the claim's own series and ``control`` its control; others are recorded.
        """
        for name, values in series.items():
            self.series.setdefault(name, []).append(np.atleast_1d(_array(values)))

    def plot(
        self,
        title: str,
        kind: str,
        arrays: Mapping[str, Tensor | ArrayLike],
        x: str = "",
        y: str = "",
        log: bool = False,
    ) -> None:
        """Keep a plot (see `Plot`); it replaces one of the same title."""
        plain = {label: _array(values) for label, values in arrays.items()}
        self.plots[title] = Plot(title, kind, plain, x, y, log)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Keep a table of text for the page; it replaces one of the same title."""
        self.plots[title] = Plot(title, "table", columns=list(columns), rows=[*map(list, rows)])

    def values(self, name: str) -> Array:
        """One series over all draws so far; empty if there is none."""
        parts = self.series.get(name)
        return np.concatenate(parts) if parts else np.empty(0)

    def defined(self, name: str) -> Array:
        """The same without draws that have no finite value."""
        values = self.values(name)
        finite = np.isfinite(values)
        return values[finite.all(axis=1) if values.ndim == 2 else finite]

    def undefined(self, name: str) -> str:
        """Why a series has too few values to be judged; empty if it has enough."""
        drawn, defined = len(self.values(name)), len(self.defined(name))
        if drawn - defined > UNDEFINED * drawn:
            without = f"{drawn - defined} of {drawn} draws"
            return f"the {name} is undefined (0 / 0, or not finite) on {without}"
        return "" if defined else f"no draw has a value of the {name}"


def _array(values: Tensor | ArrayLike) -> Array:
    if isinstance(values, Tensor):
        values = values.detach().double().cpu().numpy()
    return np.asarray(values, dtype=np.float64)
