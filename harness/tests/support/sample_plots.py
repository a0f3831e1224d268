"""A plot of each kind, and what is read from a drawing."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import numpy as np

from assay.harness.results.arrays import Plot

EDGES = np.linspace(-1, 1, 11)
STEPS = np.array([30.0, 100.0, 500.0, 2000.0])


def rising(*values: float) -> Any:
    """A curve with a band around ``values`` at `STEPS`."""
    y = np.array(values)
    return np.column_stack([STEPS, y, y - 0.05, y + 0.05])


def cosines(rows: int = 24, seed: int = 0) -> Any:
    """The cosines of so many random rows."""
    table = np.random.default_rng(seed).normal(size=(rows, 8))
    table /= np.linalg.norm(table, axis=1, keepdims=True)
    return table @ table.T


def every_kind() -> dict[str, Plot]:
    """A plot of each kind, by kind."""
    draws = np.random.default_rng(1)
    plots = (
        Plot("Cosines of rows", "map", {"cosine": cosines()}, "position", "position"),
        Plot(
            "Cosines of dimensions", "histograms",
            {"edges": EDGES, "seen": np.arange(10.0), "shuffled": np.arange(10.0)[::-1]},
            "cosine", "pairs",
        ),
        Plot(
            "Similar pairs", "scatter",
            {f"({i}, {i + 1})": draws.normal(size=(30, 2)) for i in range(10)}, "first", "second",
        ),
        Plot(
            "Divergence", "distributions",
            {"positions": draws.lognormal(-3, 1, 200), "tokens": draws.lognormal(0, 1, 200)},
            "", "KL, nats", log=True,
        ),
        Plot(
            "Success", "curves",
            {"one layer": rising(0, 0, 0.1, 0.1), "two layers": rising(0.1, 0.5, 0.9, 1)},
            "steps", "share of seeds", log=True,
        ),
    )  # fmt: skip
    return {plot.kind: plot for plot in plots}


def texts_of(svg: str) -> list[str]:
    """What is written in a drawing."""
    texts = ElementTree.fromstring(svg).iter("text")
    return ["".join(piece.strip() for piece in text.itertext()) for text in texts]
