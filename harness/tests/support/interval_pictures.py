"""The pictures of docs/findings.md: intervals of findings and their bounds, from a run's JSON.

``python harness/tests/support/interval_pictures.py run.json docs/findings E3 E6`` draws one SVG
for each claim number, with a row for each of its findings.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from assay.harness.report.intervals import ends, real, together

INK = {"upheld": "#1a7f37", "refuted": "#cf222e", "inconclusive": "#9a6700"}
WIDTH, ROW, HEAD = 7.6, 0.5, 0.75
"""Inches: of a picture, of a finding's row, and of what is around the rows of one bound."""

LETTERS = 44
"""In a line of a finding's name."""


def draw(findings: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw ``findings``, as in a run's JSON, to the SVG ``path``; one axis for each bound.

    Findings without an interval are left out.
    """
    groups: dict[str, list[dict[str, Any]]] = {}
    for each in findings:
        if ends(each["interval"]) is not None and real(each["observed"]) is not None:
            groups.setdefault(str(each["details"].get("claimed", "")), []).append(each)
    heights = [HEAD + ROW * len(group) for group in groups.values()]
    with mpl.rc_context({"svg.hashsalt": path.stem, "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(WIDTH, sum(heights)), layout="constrained")
        axes = figure.subplots(len(groups), squeeze=False, height_ratios=heights)[:, 0]
        for axis, (claimed, group) in zip(axes, groups.items(), strict=True):
            _intervals(axis, claimed, group)
        figure.savefig(path, format="svg", metadata={"Date": None})


def _intervals(axes: Axes, claimed: str, group: Sequence[dict[str, Any]]) -> None:
    for row, each in enumerate(group):
        low, high = ends(each["interval"]) or (0.0, 0.0)
        at = float(each["observed"])
        ink = INK.get(each["verdict"], "#57606a")
        axes.plot([max(low, -1e9), min(high, 1e9)], [row, row], color=ink, linewidth=3)
        axes.plot([at], [row], "o", color=ink)
        words = f"{together(at, each['interval'])}  {each['verdict']}"
        axes.annotate(words, (at, row), (0, 7), textcoords="offset points", ha="center", color=ink)
    axes.axvline(float(group[0]["bound"]), color="#24292f", linestyle="--", linewidth=1)
    names = ["\n".join(textwrap.wrap(each["name"], LETTERS)) for each in group]
    axes.set_yticks(range(len(group)), names)
    axes.set_ylim(len(group) - 0.4, -0.7)
    axes.margins(x=0.25)
    axes.set_xlabel(f"claimed: {claimed} (dashed)")
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)


def main(run: str, folder: str, *numbers: str) -> None:
    """Draw the findings of the claims ``numbers`` in ``run`` into ``folder``."""
    claims = json.loads(Path(run).read_text())["claims"]
    Path(folder).mkdir(parents=True, exist_ok=True)
    for number in numbers:
        draw([each for each in claims if each["id"] == number], Path(folder, f"{number}.svg"))


if __name__ == "__main__":
    main(*sys.argv[1:])
