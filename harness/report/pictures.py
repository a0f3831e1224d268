"""Draws margins: for each law the observed and the allowed value, on a log scale."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from assay.harness.report import canvas, svg, texts
from assay.harness.report.canvas import INK, LINE, MUTED, TINT
from assay.harness.results.verdicts import Kind, Result, Verdict

MOST_ROWS = 60
"""Of more claims than this, those with the least margin are drawn."""

MOST_DECADES = 10
"""How far the scale goes beyond the bounds at most; dots further out are at its edge."""

STEPS = {
    "float64": 2.0**-52,
    "float32": 2.0**-23,
    "bfloat16": 2.0**-7,
    "float16": 2.0**-10,
}
"""The spacing of numbers near one, per dtype."""

_VERDICT_COLOURS = {
    verdict: svg.COLOURS[verdict.value]
    for verdict in (Verdict.UPHELD, Verdict.REFUTED, Verdict.INCONCLUSIVE)
}
_MARKERS = {Verdict.UPHELD: "o", Verdict.REFUTED: "D", Verdict.INCONCLUSIVE: "s"}


@dataclass(frozen=True)
class Layout:
    """Sizes of one drawing in pixels: its width, the room at either side, a row, the type.

    ``letters`` is the room for a claim's name.  Where rows are ``stacked`` the name is above its
    dot, else to the left of it.
    """

    name: str
    width: int
    left: int
    right: int
    row: int
    type: float
    letters: int
    stacked: bool


WIDE = Layout("wide", 976, left=410, right=84, row=24, type=13, letters=50, stacked=False)
NARROW = Layout("narrow", 330, left=8, right=54, row=42, type=11.5, letters=44, stacked=True)

_TOP, _BOTTOM = 30, 34


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
    chosen = set(ranked[:most])
    return [result for i, result in enumerate(results) if i in chosen]


def margins(results: Sequence[Result], dtype: str, layout: Layout, prefix: str) -> str:
    """An inline ``<svg>`` of ``results`` (from `drawable`, not empty), one row each.

    ``prefix`` keeps its ids apart from those of other pictures on the page.  The text is text
    and the colours are the page's CSS variables; the output depends on the arguments alone.
    """
    height = _TOP + layout.row * len(results) + _BOTTOM

    def paint(figure: Figure) -> None:
        axes = canvas.axes_within(figure, layout.left, _TOP, layout.right, _BOTTOM)
        _draw(axes, results, dtype.removeprefix("torch."), layout)

    return canvas.draw(paint, layout.name, (layout.width, height), layout.type, prefix)


def _draw(axes: Axes, results: Sequence[Result], dtype: str, layout: Layout) -> None:
    low, high = _limits(results, dtype)
    axes.set_xlim(low, high)
    axes.set_ylim(len(results) - 0.5, -0.5)
    _grid(axes, low, dtype, layout)
    rows = range(len(results))
    observed = [_place(result, low, high) for result in results]
    allowed = [_on_scale(result.bound or 0.0, low, high) for result in results]
    lines = [(x for pair in zip(observed, allowed, strict=True) for x in (*pair, math.nan))]
    lines.append(y for row in rows for y in (row, row, math.nan))
    axes.plot(*map(list, lines), color=MUTED, linewidth=1.2, clip_on=False)
    tick: dict[str, Any] = {"markersize": 14, "markeredgewidth": 2, "zorder": 4, "clip_on": False}
    axes.plot(allowed, rows, "|", color=INK, **tick)
    for verdict, marker in _MARKERS.items():
        chosen = [row for row in rows if results[row].verdict is verdict]
        style: dict[str, Any] = {
            "color": _VERDICT_COLOURS[verdict],
            "markersize": 9 if marker == "o" else 8,
        }
        if chosen:
            axes.plot(
                [observed[row] for row in chosen], chosen, marker,
                markeredgewidth=0, zorder=5, clip_on=False, **style,
            )  # fmt: skip
    for row, result in enumerate(results):
        _label(axes, row, result, layout)


def _limits(results: Sequence[Result], dtype: str) -> tuple[float, float]:
    """Whole decades that include every bound, the noise and, within limits, observed values."""
    values = [math.log10(result.bound) for result in results if result.bound]
    values.append(math.log10(STEPS.get(dtype, STEPS["float32"])))
    near, far = min(values) - MOST_DECADES, max(values) + MOST_DECADES
    observed = [r.observed for r in results if r.observed and math.isfinite(r.observed)]
    values += [min(far, max(near, math.log10(value))) for value in observed]
    return math.floor(min(values) - 0.7), math.ceil(max(values) + 0.3)


def _place(result: Result, low: float, high: float) -> float:
    """The position of the dot; values that are not finite are at the right edge."""
    observed = result.observed
    if observed is None or not math.isfinite(observed):
        return low if (result.margin or 0.0) > 0 else high
    return _on_scale(observed, low, high)


def _on_scale(value: float, low: float, high: float) -> float:
    """The logarithm, kept within the picture; zero is at its left edge."""
    return min(high, max(low, math.log10(value))) if value > 0 else low


def _grid(axes: Axes, low: float, dtype: str, layout: Layout) -> None:
    """Lines at powers of ten, and the region below one rounding of the number format."""
    axes.xaxis.set_major_locator(
        MaxNLocator(4 if layout.stacked else 8, integer=True, prune="lower")
    )
    axes.xaxis.set_major_formatter(FuncFormatter(lambda at, _: _decade(round(at))))
    axes.tick_params(length=0, labelcolor=MUTED, labelleft=False)
    axes.grid(visible=True, axis="x", color=LINE, linewidth=1)
    axes.set_axisbelow(True)
    for side in axes.spines.values():
        side.set_visible(False)
    if dtype in STEPS:
        noise = math.log10(STEPS[dtype])
        axes.axvspan(low, noise, color=TINT, linewidth=0, zorder=0)
        axes.set_title(
            f"one rounding of {dtype}", x=(noise - low) / (axes.get_xlim()[1] - low),
            color=MUTED, size=layout.type, parse_math=False,
        )  # fmt: skip


def _decade(exponent: int) -> str:
    return "1" if exponent == 0 else "10" + str(exponent).translate(texts.SUPERSCRIPTS)


def _label(axes: Axes, row: int, result: Result, layout: Layout) -> None:
    """The claim at the left of its dot or above it, its margin in decades at the right."""

    def write(x: float, up: float, text: str, **style: Any) -> None:
        axes.annotate(
            text,
            (0, row),
            xycoords=("axes pixels", "data"),
            xytext=(x - layout.left, up),
            textcoords="offset pixels",
            va="center_baseline",
            annotation_clip=False,
            parse_math=False,
            **style,
        )

    up = layout.row * 0.4 if layout.stacked else 0
    write(0, up, texts.visible(result.id), color=INK, weight="bold")
    name = texts.shortened(texts.visible(result.name), layout.letters)
    write(3 * layout.type, up, name, color=INK)
    margin = texts.decades(result).replace("-", "−")
    write(layout.width, 0, margin, color=_VERDICT_COLOURS[result.verdict], ha="right")
