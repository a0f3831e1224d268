"""Draws histograms, scatter plots and curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from assay.harness.report import texts
from assay.harness.report.drawing import Drawing, Series, dots, listed, paint
from assay.harness.report.scales import frame, limits, numbers
from assay.harness.results.arrays import Array, Plot

MOST_BINS = 400

MOST_POINTS = 3000
"""The most points of a scatter; beyond that, one in two, three, … of each series is drawn."""

MOST_KNOTS = 500
"""Of one curve."""


def _all(arrays: Sequence[Array]) -> Array:
    return np.concatenate([np.ravel(array) for array in arrays])


def _lost(rows: Array, label: str, drawing: Drawing) -> None:
    if lost := int((~np.isfinite(rows)).any(axis=1).sum()):
        drawing.notes.append(f"{lost} of {len(rows)} points of ‘{label}’ are not finite.")


def histograms(plot: Plot, salt: str, drawing: Drawing) -> None:
    """Outlines of counts over the same bins."""
    edges = numbers(plot.arrays.get("edges", np.empty(0))).ravel()
    counted = {label: a for label, a in plot.arrays.items() if label != "edges"}
    bins = len(edges) - 1
    if bins < 1 or not np.isfinite(edges).all() or (np.diff(edges) <= 0).any():
        drawing.notes.append("The edges of its bins are not in order.")
        return

    def fit(counts: Array) -> Array | None:
        return np.nan_to_num(counts.ravel()) if counts.size == bins else None

    series = listed(counted, fit, drawing)
    if not series:
        return
    width = math.ceil(bins / MOST_BINS)
    starts = np.arange(0, bins, width)
    edges = np.append(edges[starts], edges[-1])
    heights = [np.add.reduceat(each.values, starts) for each in series]

    def put(axes: Axes) -> None:
        axes.set(xlim=limits(edges, pad=0.0))
        axes.set(ylim=limits(np.append(_all(heights) * 1.04, 0.0), pad=0.0))
        frame(axes, plot.x, plot.y or "count")
        for each, counts in zip(series, heights, strict=True):
            axes.stairs(counts, edges, fill=True, color=each.ink, alpha=0.13, linewidth=0)
            axes.stairs(counts, edges, color=each.ink, linewidth=1.6, linestyle=each.style)

    drawing.svg = paint(salt, put)
    for each, counts in zip(series, heights, strict=True):
        total = texts.large(float(counts.sum()))
        drawing.legend.append(each.entry(f"{total} counted"))
        peak = int(counts.argmax())
        between = " to ".join(texts.number(float(edge)) for edge in edges[peak : peak + 2])
        drawing.spoken.append(f"{each.label}: {total} counted, most of them from {between}.")


def scatter(plot: Plot, salt: str, drawing: Drawing) -> None:
    """Connected dots: neighbours in a series are neighbours on its line."""

    def fit(points: Array) -> Array | None:
        two = points.ndim == 2 and points.shape[1] == 2
        return points if two and np.isfinite(points).all(axis=1).any() else None

    series = listed(plot.arrays, fit, drawing)
    if not series:
        return
    for each in series:
        _lost(each.values, each.label, drawing)
    whole = [each.values[np.isfinite(each.values).all(axis=1)] for each in series]
    step = math.ceil(sum(map(len, whole)) / MOST_POINTS)
    shown = [points[::step] for points in whole]
    if step > 1:
        drawing.notes.append(f"One point in {step} is drawn.")

    def put(axes: Axes) -> None:
        x, y = (_all([points[:, i] for points in whole]) for i in (0, 1))
        axes.set(xlim=limits(x), ylim=limits(y))
        frame(axes, plot.x, plot.y)
        for each, points in zip(series, shown, strict=True):
            axes.plot(
                *points.T, color=each.ink, linewidth=0.9, alpha=0.45, linestyle=each.style,
                clip_on=False,
            )  # fmt: skip
            dots(axes, points, each.ink, 3.0, 0.75)

    drawing.svg = paint(salt, put)
    drawing.legend = [each.entry() for each in series]
    drawing.spoken = [
        f"{each.label}: {texts.counted(len(points), 'point')}."
        for each, points in zip(series, whole, strict=True)
    ]


def curves(plot: Plot, salt: str, drawing: Drawing) -> None:
    """Lines through knots, with a band where these have an interval."""

    def fit(knots: Array) -> Array | None:
        if knots.ndim != 2 or knots.shape[1] not in (2, 4):
            return None
        knots = knots[:: math.ceil(len(knots) / MOST_KNOTS) or 1].copy()
        if plot.log:
            with np.errstate(invalid="ignore", divide="ignore"):
                knots[:, 0] = np.where(knots[:, 0] > 0, np.log10(knots[:, 0]), math.nan)
        return knots if np.isfinite(knots[:, :2]).all(axis=1).any() else None

    series = listed(plot.arrays, fit, drawing)
    if not series:
        return
    finite = []
    for each in series:
        fine: Any = np.isfinite(each.values[:, :2]).all(axis=1)
        if lost := int((~fine).sum()):
            why = "at or below zero or " if plot.log else ""
            note = f"{lost} of {len(fine)} points of ‘{each.label}’ are {why}not finite."
            drawing.notes.append(note)
        finite.append(each.values[fine])

    def put(axes: Axes) -> None:
        x, y = (_all([knots[:, part] for knots in finite]) for part in (slice(1), slice(1, None)))
        axes.set(xlim=limits(x, plot.log), ylim=limits(y))
        frame(axes, plot.x, plot.y, log=plot.log, marks=np.unique(x))
        for each, knots in zip(series, finite, strict=True):
            if knots.shape[1] == 4:
                _band(axes, each, knots)
            axes.plot(
                *knots.T[:2], color=each.ink, linewidth=1.9, linestyle=each.style, clip_on=False
            )
            if len(knots) <= 40:
                dots(axes, knots[:, :2], each.ink, 5.5, 1.0)

    drawing.svg = paint(salt, put)
    for each, knots in zip(series, finite, strict=True):
        drawing.legend.append(each.entry())
        ends = [texts.number(float(value)) for value in knots[[0, -1], 1]]
        at = [10.0**v if plot.log else v for v in map(float, knots[[0, -1], 0])]
        path = (f"{e} at {texts.number(a)}" for e, a in zip(ends, at, strict=True))
        drawing.spoken.append(f"{each.label}: from {' to '.join(path)}.")


def _band(axes: Axes, each: Series, knots: Array) -> None:
    fine = knots[np.isfinite(knots).all(axis=1)]
    if len(fine) > 1:
        axes.fill_between(
            fine[:, 0], fine[:, 2], fine[:, 3], color=each.ink, alpha=0.16, linewidth=0
        )
    elif len(fine):
        axes.vlines(fine[:, 0], fine[:, 2], fine[:, 3], color=each.ink, linewidth=1, alpha=0.6)
