"""Rooflines: what descents reach, under what the machine allows at their arithmetic intensity.

A point is a descent: FLOP/s over FLOP per byte that it has to move.  A roof is the lower of the
copy bandwidth times that intensity and the best matrix product of an arithmetic (Williams,
Waterman and Patterson, 2009).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from assay.harness.comparison.timings import Timings

MARKERS = {"float32": "o", "tf32": "s", "bfloat16": "^", "float16": "v", "float64": "D"}
"""The marker of an arithmetic's points; its roof has the same colour."""


def ceilings(run: Timings) -> dict[str, float]:
    """The best product by arithmetic, FLOP/s, that the run measured."""
    found: dict[str, float] = {}
    for each in run.benchmarks.values():
        ceiling = each.about.get("ceiling")
        if isinstance(ceiling, Mapping):
            found[str(ceiling["arithmetic"])] = float(ceiling["flops_per_second"])
    return found


def bandwidth(run: Timings) -> float | None:
    """Bytes per second that the machine copies; the best of the run."""
    rates = [each.about.get("bandwidth") for each in run.benchmarks.values()]
    known = [float(rate) for rate in rates if isinstance(rate, int | float)]
    return max(known) if known else None


def points(run: Timings) -> list[Mapping[str, Any]]:
    """The descents of a run: arithmetic, intensity and FLOP/s."""
    found = (each.about.get("roofline") for each in run.benchmarks.values())
    return [each for each in found if isinstance(each, Mapping)]


def roof(intensity: Any, ceiling: float, rate: float) -> Any:
    """FLOP/s that a machine allows at an ``intensity``, with its ceiling and bandwidth."""
    return np.minimum(ceiling, rate * np.asarray(intensity))


def drawn(runs: Sequence[Timings], folder: Path) -> list[Path]:
    """A picture for each run that has ceilings, a bandwidth and points; the SVG files."""
    paths: list[Path] = []
    for run in runs:
        roofs, rate, found = ceilings(run), bandwidth(run), points(run)
        if not roofs or rate is None or not found:
            continue
        facts = run.facts(("card", "processor"))
        machine = facts.get("card") or facts.get("processor") or run.path.stem
        path = folder / f"roofline-{_slug(machine)}.svg"
        if path in paths:
            path = folder / f"roofline-{_slug(machine)}-{len(paths) + 1}.svg"
        _picture(roofs, rate, found, machine).savefig(path, format="svg", metadata={"Date": None})
        paths.append(path)
    return paths


def _picture(
    roofs: Mapping[str, float], rate: float, found: Sequence[Mapping[str, Any]], machine: str
) -> Figure:
    figure = Figure(figsize=(6, 4))
    FigureCanvasSVG(figure)
    axes = figure.add_subplot()
    reached = [float(point["intensity"]) for point in found]
    ridges = [ceiling / rate for ceiling in roofs.values()]
    x = np.geomspace(min(reached + ridges) / 4, max(reached + ridges) * 4, 200)
    for number, (arithmetic, ceiling) in enumerate(sorted(roofs.items())):
        colour = f"C{number}"
        axes.plot(x, roof(x, ceiling, rate), color=colour, label=f"{arithmetic}, best product")
        own = [point for point in found if point["arithmetic"] == arithmetic]
        if own:
            axes.scatter(
                [float(point["intensity"]) for point in own],
                [float(point["flops_per_second"]) for point in own],
                color=colour,
                marker=MARKERS.get(arithmetic, "o"),
                label=f"{arithmetic}, descents",
                zorder=3,
            )
    axes.set(xscale="log", yscale="log", title=machine)
    axes.set(xlabel="FLOP per byte that has to be moved (at most)", ylabel="FLOP / s")
    axes.legend(frameon=False, fontsize="small")
    figure.tight_layout()
    return figure


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60] or "machine"
