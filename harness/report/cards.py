"""A machine's results in the benchmarks: a Markdown table, and two plots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from assay.harness.comparison.timings import FIGURE, HARDWARE, VERSIONS, Timing, Timings
from assay.harness.report import rooflines

HEAD = (
    "| benchmark | figure | reached | over rounds | 20 to 80 % | goal |\n"
    "|---|---|---:|---:|---:|---|"
)


def markdown(run: Timings) -> str:
    """The run as Markdown: its machine and versions, every figure, and doubts."""
    facts = run.facts((*HARDWARE, *VERSIONS)) | ({"commit": run.commit} if run.commit else {})
    machine = ", ".join(f"{name} {value}" for name, value in facts.items())
    lines = [machine, "", HEAD]
    for benchmark in run.benchmarks.values():
        lines += [_row(figure) for figure in figures(benchmark)]
    doubts = [
        f"- {benchmark.name}: {doubt}"
        for benchmark in run.benchmarks.values()
        for doubt in benchmark.about.get("doubts", ())
    ]
    if doubts:
        lines += ["", "Doubts:", "", *doubts]
    return "\n".join(lines) + "\n"


def figures(benchmark: Timing) -> Iterator[dict[str, Any]]:
    """The figures that a benchmark recorded with its seconds."""
    for value in benchmark.about.values():
        if isinstance(value, dict) and set(value) >= FIGURE:
            yield value


def _row(figure: dict[str, Any]) -> str:
    rounds = _range(figure["low"], figure["high"])
    goal = ""
    if figure["goal"] is not None:
        met = {True: "met", False: "**missed**", None: ""}[figure.get("met")]
        goal = f"{'≤' if figure.get('at_most') else '≥'} {number(figure['goal'])}, {met}"
    middle = _range(figure.get("p20"), figure.get("p80"))
    cells = (figure["benchmark"], figure["what"], number(figure["reached"]), rounds, middle, goal)
    return "| " + " | ".join(cells) + " |"


def _range(low: float | None, high: float | None) -> str:
    if low is None or high is None or low == high:
        return ""
    return f"{number(low)} to {number(high)}"


def machines(runs: Sequence[Timings]) -> str:
    """The figures of several runs next to each other as Markdown, a column for each machine.

    Only figures that two of them have; a figure's goal is that of the first.
    """
    columns = [
        {_key(each): each for benchmark in run.benchmarks.values() for each in figures(benchmark)}
        for run in runs
    ]
    keys = [key for key in dict.fromkeys(k for c in columns for k in c) if _shared(key, columns)]
    names = [_machine(run) for run in runs]
    lines = [f"| benchmark | figure | {' | '.join(names)} |", "|---|---|" + "---:|" * len(runs)]
    for key in keys:
        cells = [number(column[key]["reached"]) if key in column else "" for column in columns]
        lines.append("| " + " | ".join([*key, *cells]) + " |")
    return "\n".join(lines) + "\n"


def _key(figure: dict[str, Any]) -> tuple[str, str]:
    return str(figure["benchmark"]), str(figure["what"])


def _shared(key: tuple[str, str], columns: Sequence[dict[tuple[str, str], Any]]) -> bool:
    return sum(key in column for column in columns) > 1


def _machine(run: Timings) -> str:
    """The name of a run's machine: its GPU, or its processor with the threads; or the file's."""
    facts = run.facts(("card", "processor", "threads", "rehearsal"))
    name = facts.get("card") or f"{facts.get('processor', run.path.name)}, {facts.get('threads')}"
    return f"{name}, rehearsal" if "rehearsal" in facts else name


def number(value: float) -> str:
    """``value`` with three digits."""
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def plots(runs: Sequence[Timings], folder: Path) -> list[Path]:
    """Throughput over batch, utilisation over depth, and rooflines, as SVG files."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = rooflines.drawn(runs, folder)
    for name, x, y, words in (
        ("throughput-over-batch", "rows", "token_steps_per_second", "token-steps / s"),
        ("utilisation-over-depth", "depth", "utilisation", "share of the best product"),
    ):
        figure = Figure(figsize=(6, 4))
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        lines = [_line(axes, run, x, y) for run in runs]
        if not any(lines):
            continue
        axes.set(xlabel={"rows": "prompts", "depth": "blocks"}[x], ylabel=words, ylim=(0, None))
        if x == "rows":
            axes.set_xscale("log", base=2)
        axes.legend(frameon=False)
        figure.tight_layout()
        path = folder / f"{name}.svg"
        figure.savefig(path, format="svg", metadata={"Date": None})
        paths.append(path)
    return paths


def _line(axes: Axes, run: Timings, x: str, y: str) -> bool:
    """Draw the descents that differ from the default in ``x`` alone."""
    cases = [each.about for each in run.benchmarks.values() if "case" in each.about]
    others = [
        name
        for name in ("rows", "depth", "tokens", "through", "arithmetic", "runner")
        if name != x
    ]
    groups: dict[tuple[Any, ...], dict[float, float]] = {}
    for about in cases:
        key = (about.get("model"), *(str(about["case"].get(name)) for name in others))
        groups.setdefault(key, {})[about["case"][x]] = about[y]
    key, longest = max(groups.items(), key=lambda each: len(each[1]), default=((), {}))
    if len(longest) < 2:
        return False
    points = np.array(sorted(longest.items()), dtype=float)
    facts = run.facts(("card", "processor"))
    machine = facts.get("card") or facts.get("processor", "")
    axes.plot(*points.T, marker="o", label=f"{key[0]} on {machine}")
    return True
