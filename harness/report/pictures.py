"""Draws the page's pictures with matplotlib: margins of laws, and the plots of findings."""

from __future__ import annotations

import io
import math
import re
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.rcsetup import cycler
from matplotlib.ticker import MaxNLocator

from assay.harness.report import texts
from assay.harness.results.arrays import Array, Plot
from assay.harness.results.verdicts import Kind, Result, Verdict

MOST_ROWS = 60
"""Of more claims than this, those with the least margin are drawn."""

MOST_DECADES = 10
"""How far the scale of margins goes beyond the bounds; dots further out are at its edge."""

MOST_SERIES = 12
MOST_LETTERS = 50

STEPS = {
    "float64": 2.0**-52,
    "float32": 2.0**-23,
    "bfloat16": 2.0**-7,
    "float16": 2.0**-10,
}
"""The spacing of numbers near one, per dtype."""

HUGE = 1e100
"""Numbers beyond this count as infinite: sums of a few would overflow in drawing."""

# Matplotlib draws with these stand-ins; the page's own colours replace them afterwards, so
# that one picture serves light and dark.
PAGE_COLOURS = {
    name: f"#0102{number:02x}"
    for number, name in enumerate(
        ("ink", "muted", "line", "tint", "upheld", "refuted", "inconclusive"), start=3
    )
}
INK, MUTED, LINE, TINT = (PAGE_COLOURS[name] for name in ("ink", "muted", "line", "tint"))

SERIES = ("#2f7fd0", "#e0701a", "#009e73", "#cc5fa0", "#7b61c9", "#8b8778")
"""Colours of series, each at least 3 : 1 against a light and a dark page."""

COSINES = LinearSegmentedColormap.from_list(
    "cosines",
    [(0, SERIES[1]), (0.5, (SERIES[1], 0)), (0.5, (SERIES[0], 0)), (1, SERIES[0])],
    N=127,
).with_extremes(bad="#808080")
"""Orange below zero and blue above; at zero the page's own ground, light or dark, is seen."""

STYLE: Any = {
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "font.size": 11,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": MUTED,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.prop_cycle": cycler(linestyle=["-", "--"]) * cycler(color=SERIES),
    "grid.color": LINE,
    "xtick.color": MUTED,
    "xtick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.color": MUTED,
    "ytick.major.size": 0,
    "ytick.major.pad": 8,
    "legend.frameon": False,
    "legend.fontsize": 10,
}

_MARKERS = {Verdict.UPHELD: "o", Verdict.REFUTED: "D", Verdict.INCONCLUSIVE: "s"}


def _svg(paint: Callable[[Figure], None], size: tuple[float, float], salt: str) -> str:
    """An ``<svg>`` for a page, ``size`` inches large, that ``paint`` fills.

    ``salt`` keeps its ids apart from those of other pictures on the page.  The text is text;
    the output depends on the arguments alone.
    """
    stream = io.StringIO()
    with rc_context(STYLE | {"svg.hashsalt": salt}), warnings.catch_warnings():
        # What its own font lacks does not matter: the reader's fonts draw the text.
        warnings.simplefilter("ignore")
        figure = Figure(figsize=size, layout="constrained")
        paint(figure)
        nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
        figure.savefig(stream, format="svg", transparent=True, dpi=96, metadata=nothing)
    document = stream.getvalue()
    # Numbered ids would stand twice on a page, and its style would hold for the whole page.
    unwanted = r'<style.*?</style>| id="[^"]*_\d+"| xmlns(:xlink)?="[^"]*"'
    svg = re.sub(unwanted, "", document[document.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r' width="[\d.]+pt" height="[\d.]+pt"', ' aria-hidden="true"', svg, count=1)
    svg = svg.replace("'DejaVu Sans'", "var(--text)").replace(" xlink:href", " href")
    for name, stand_in in PAGE_COLOURS.items():
        svg = svg.replace(stand_in, f"var(--{name})")
    return svg


def _plain(text: str) -> str:
    """``text`` as matplotlib draws it unchanged: no formula, and no hidden entry of a legend."""
    return texts.shortened(texts.visible(text), MOST_LETTERS).replace("$", r"\$").lstrip("_")


# -- margins ----------------------------------------------------------------------------------


def drawable(results: Iterable[Result]) -> list[Result]:
    """Laws that fit on a log scale: nothing negative, a bound and a margin."""
    return [
        result
        for result in results
        if result.kind is Kind.LAW
        and result.verdict is not Verdict.NOT_APPLICABLE
        and result.bound is not None
        and 0 <= result.bound < math.inf
        and result.margin is not None
        and not math.isnan(result.margin)
        and not (result.observed or 0.0) < 0
    ]


def tightest(results: Sequence[Result], most: int = MOST_ROWS) -> list[Result]:
    """At most ``most`` results, those with the least margin, in their order."""
    ranked = sorted(range(len(results)), key=lambda i: results[i].margin or 0.0)
    return [results[i] for i in sorted(ranked[:most])]


def margins(results: Sequence[Result], dtype: str, salt: str) -> str:
    """An inline ``<svg>`` of ``results`` (from `drawable`, not empty), one row each.

    The observed value is a dot, the bound a tick, on a log scale; their distance in decades
    stands at the right.  One rounding of ``dtype`` and what is below it is shaded.
    """
    low, high = _limits(results, dtype)
    observed = [_on_scale(result.observed, low, high) for result in results]
    allowed = [_on_scale(result.bound, low, high) for result in results]
    rows = range(len(results))

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        axes.set(xlim=(low, high), ylim=(len(results) - 0.5, -0.5))
        if dtype in STEPS:
            axes.axvspan(low, math.log10(STEPS[dtype]), color=TINT, linewidth=0)
        axes.hlines(rows, observed, allowed, color=MUTED, linewidth=1.2)
        axes.plot(allowed, rows, "|", color=INK, markersize=13, markeredgewidth=2, clip_on=False)
        for row, result in enumerate(results):
            colour = PAGE_COLOURS[result.verdict.value]
            axes.plot(
                observed[row], row, _MARKERS[result.verdict], color=colour, markersize=8,
                markeredgewidth=0, clip_on=False,
            )  # fmt: skip
            axes.text(
                1.02, row, texts.decades(result).replace("-", "−"), color=colour,
                va="center_baseline", transform=axes.get_yaxis_transform(),
            )  # fmt: skip
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        axes.xaxis.set_major_formatter(lambda at, _: texts.power(10.0**at))
        axes.grid(visible=False, axis="y")
        names = [_plain(f"{result.id}  {result.name}") for result in results]
        axes.set_yticks(rows, names, color=INK)

    return _svg(paint, (10.6, 0.5 + 0.28 * len(results)), salt)


def _limits(results: Sequence[Result], dtype: str) -> tuple[float, float]:
    """Whole decades that include every bound, the noise and, within limits, observed values."""
    values = [math.log10(result.bound) for result in results if result.bound]
    values.append(math.log10(STEPS.get(dtype, STEPS["float32"])))
    near, far = min(values) - MOST_DECADES, max(values) + MOST_DECADES
    observed = [r.observed for r in results if r.observed and math.isfinite(r.observed)]
    values += [min(far, max(near, math.log10(value))) for value in observed]
    return math.floor(min(values) - 0.7), math.ceil(max(values) + 0.3)


def _on_scale(value: float | None, low: float, high: float) -> float:
    """The logarithm, kept within the picture: zero is at its left edge, no number at its right.

    JSON has no number for what is infinite or NaN.
    """
    if value is None or math.isnan(value):
        return high
    return min(high, max(low, math.log10(value))) if value > 0 else low


# -- plots of findings ------------------------------------------------------------------------


@dataclass(frozen=True)
class Drawing:
    """An ``<svg>``, empty where nothing could be drawn, what it shows in words, and notes."""

    svg: str = ""
    words: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def draw(plot: Plot, salt: str) -> Drawing:
    """``plot`` as a drawing; where it cannot be drawn a note says why.

    ``salt`` keeps its ids apart from those of other pictures on the page.
    """
    drawing = Drawing()
    if plot.kind not in KINDS:
        drawing.notes.append(f"Unknown kind of picture: ‘{texts.clipped(plot.kind, 40)}’.")
        return drawing
    arrays = {label: _numbers(array) for label, array in list(plot.arrays.items())[:MOST_SERIES]}
    if len(plot.arrays) > MOST_SERIES:
        drawing.notes.append(f"{len(plot.arrays)} series; the first {MOST_SERIES} are drawn.")
    for label in [label for label, array in arrays.items() if not np.isfinite(array).any()]:
        del arrays[label]
        drawing.notes.append(f"Nothing to draw for ‘{label}’.")
    if not arrays:
        drawing.notes.append("There is nothing to draw.")
        return drawing
    if lost := sum(int(np.isnan(array).sum()) for array in arrays.values()):
        drawing.notes.append(f"{texts.counted(lost, 'number')} not finite, and not drawn.")

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        axes.set(xlabel=_plain(plot.x), ylabel=_plain(plot.y))
        drawing.words.extend(KINDS[plot.kind](axes, plot, arrays))
        if len(axes.get_legend_handles_labels()[1]) > 1:
            figure.legend(loc="outside lower center", ncols=2)

    height = 1.3 + 0.7 * len(arrays) if plot.kind == "distributions" else 3.5
    try:
        svg = _svg(paint, (5.0, height), salt)
    except Exception as error:
        # An array may have any shape; the page of a long run must come all the same.
        return Drawing(notes=[*drawing.notes, f"It cannot be drawn: {error}."])
    return Drawing(svg, drawing.words, drawing.notes)


def _numbers(array: Array) -> Array:
    """``array`` as float64 with NaN in place of numbers that cannot be drawn."""
    array = np.asarray(array, dtype=np.float64)
    return np.where(np.abs(array) < HUGE, array, math.nan)


def _log_x(axes: Axes, values: Array) -> None:
    """A log scale for x that has room for zero, and for what is below, where there is any."""
    positive = values[values > 0]
    if positive.size and (values <= 0).any():
        axes.set_xscale("symlog", linthresh=10 ** math.floor(math.log10(positive.min())))
    elif positive.size:
        axes.set_xscale("log")


def _map(axes: Axes, plot: Plot, arrays: dict[str, Array]) -> Iterator[str]:
    """A map of cosines, row 0 at the top, from -1 to 1."""
    ((label, cells),) = arrays.items()
    # Cells too many to be drawn are averaged as numbers: as colours they would be many more.
    image = axes.imshow(cells, COSINES, vmin=-1, vmax=1, aspect="auto", interpolation_stage="data")
    axes.set_box_aspect(1)
    axes.grid(visible=False)
    axes.figure.colorbar(image, ticks=[-1, 0, 1], drawedges=False).outline.set_visible(False)
    least, most = (texts.number(float(f(cells))) for f in (np.nanmin, np.nanmax))
    yield f"{label}: {cells.shape[0]} × {cells.shape[1]} values from {least} to {most}."


def _histograms(axes: Axes, plot: Plot, arrays: dict[str, Array]) -> Iterator[str]:
    """Outlines of counts over the same bins."""
    edges = arrays.pop("edges")
    for colour, (label, counts) in zip(SERIES * 2, arrays.items(), strict=False):
        axes.stairs(
            np.nan_to_num(counts), edges, label=_plain(label), fill=True, linewidth=1.5,
            edgecolor=colour, facecolor=(colour, 0.15),
        )  # fmt: skip
        peak = int(np.nanargmax(counts))
        between = " to ".join(texts.number(float(edge)) for edge in edges[peak : peak + 2])
        total = texts.large(float(np.nansum(counts)))
        yield f"{label}: {total} counted, most of them from {between}."
    axes.set_ylabel(_plain(plot.y or "count"))


def _scatter(axes: Axes, plot: Plot, arrays: dict[str, Array]) -> Iterator[str]:
    """Connected dots: neighbours in a series are neighbours on its line."""
    for label, points in arrays.items():
        axes.plot(
            *points.T, marker=".", markersize=4, linewidth=0.8, alpha=0.7, label=_plain(label),
            rasterized=True,
        )  # fmt: skip
        yield f"{label}: {texts.counted(len(points), 'point')}."


def _distributions(axes: Axes, plot: Plot, arrays: dict[str, Array]) -> Iterator[str]:
    """For each label its draws as dots, and a box from quartile to quartile with the median."""
    rows = [array[np.isfinite(array)] for array in arrays.values()]
    medians = [texts.number(float(np.median(row))) if len(row) else "–" for row in rows]
    names = []
    for label, row, median in zip(arrays, rows, medians, strict=True):
        names.append(f"{textwrap.fill(_plain(label), 20)}\nmedian {median}, n = {len(row)}")
        yield f"{label}: median {median}, n = {len(row)}."
    axes.set(xlabel=_plain(plot.y or plot.x), ylabel="")
    axes.grid(visible=False, axis="y")
    if plot.log:
        _log_x(axes, np.concatenate(rows))
    dark = {"color": INK, "linewidth": 1.2}
    axes.boxplot(
        rows, orientation="horizontal", tick_labels=names, showfliers=False, widths=0.3,
        boxprops=dark, medianprops=dark | {"linewidth": 2.5}, whiskerprops=dark, capprops=dark,
    )  # fmt: skip
    axes.invert_yaxis()
    for place, row in enumerate(rows, start=1):
        # Spread evenly, and the same in every run: random positions would change the page.
        spread = place + 0.4 * (np.arange(len(row)) * 0.618 % 1 - 0.5)
        axes.plot(row, spread, ".", markersize=3, alpha=0.5, rasterized=True)


def _curves(axes: Axes, plot: Plot, arrays: dict[str, Array]) -> Iterator[str]:
    """Lines through knots, with a band where these have an interval."""
    knots = {
        label: array[np.isfinite(array[:, :2]).all(axis=1)] for label, array in arrays.items()
    }
    x = np.concatenate([array[:, 0] for array in knots.values()])
    if plot.log:
        _log_x(axes, x)
    if len(marks := np.unique(x)) <= 8:
        axes.set_xticks(marks, [f"{mark:g}" for mark in marks])
        axes.minorticks_off()
    for label, array in knots.items():
        marker = "." if len(array) <= 40 else ""
        (line,) = axes.plot(*array.T[:2], marker=marker, linewidth=1.8, label=_plain(label))
        if array.shape[1] == 4:
            axes.fill_between(array[:, 0], *array.T[2:], color=line.get_color(), alpha=0.2)
        (a, first), (b, last) = ([texts.number(float(v)) for v in array[i, :2]] for i in (0, -1))
        yield f"{label}: from {first} at {a} to {last} at {b}."


KINDS: dict[str, Callable[[Axes, Plot, dict[str, Array]], Iterator[str]]] = {
    "map": _map,
    "histograms": _histograms,
    "scatter": _scatter,
    "distributions": _distributions,
    "curves": _curves,
}
