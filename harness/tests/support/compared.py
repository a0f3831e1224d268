"""Runs made up for tests of comparisons: laws and findings with samples, in evidence files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from assay.harness.comparison.sides import Side
from assay.harness.results.verdicts import Kind, Result, Verdict
from assay.harness.tests.support.evidence_files import DIGEST, a_run, write

MODEL = "tiny:gpt2"


def random(*seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def a_law(number: int, moved: float = 0.0, seed: int = 0, **changes: Any) -> Result:
    """A law upheld on twelve examples: margins of about 1.5 decades, and as much more."""
    margins = 1.5 + random(number).normal(0, 0.3, 12)
    if seed or moved:
        margins = margins + moved + random(number, seed).normal(0, 0.05, 12)
    least = float(margins.min())
    law = Result(f"C{number}", f"law {number}", Kind.LAW, MODEL, Verdict.UPHELD, examples=12)
    law = replace(law, observed=10**-least, bound=1.0, margin=least, sample={"margin": margins})
    return replace(law, **changes)


def a_finding(
    number: int, statistic: str = "mean", moved: float = 0.0, seed: int = 0, **changes: Any
) -> Result:
    """A finding upheld by 128 draws of spread 1 around 2, and as much more."""
    effect = 2 + random(number).normal(0, 1, 128)
    if seed or moved:
        effect = effect + moved + random(number, seed).normal(0, 0.1, 128)
    if statistic == "share":
        effect = (effect > 1.5).astype(float)
    finding = Result(f"D{number}", f"finding {number}", Kind.FINDING, MODEL, Verdict.UPHELD)
    value = float(np.median(effect) if statistic == "median" else np.mean(effect))
    return replace(
        finding,
        **{
            "observed": value,
            "bound": 0.0,
            "interval": (value - 0.2, value + 0.2),
            "details": {"claimed": f"{statistic} ≥ 0"},
            "sample": {"effect": effect, "control": -effect},
        }
        | changes,
    )


def on(model: str, results: Iterable[Result]) -> list[Result]:
    """The same on another model."""
    return [replace(result, subject=model) for result in results]


def side(results: Iterable[Result], name: str = "a side", **run: Any) -> Side:
    """A run with these results, as it would be read."""
    rows = {(each.id, each.name, each.subject): each for each in results}
    subjects = {subject: {"digest": DIGEST} for *_, subject in rows}
    ended = {"subjects": subjects, "finished": "2026", "exit": 0}
    return Side(name, a_run(**ended | run), rows)


def kept(
    path: Path, results: Sequence[Result], id: str = "f" * 32, end: bool = True, **run: Any
) -> Path:
    """An evidence file, made or added to, with a run of these results."""
    subjects = {each.subject: {"digest": DIGEST} for each in results}
    return write(path, a_run(id, **{"subjects": subjects} | run), results, end)
