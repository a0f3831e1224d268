"""How time grows: the exponents of batch, length, depth and vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from transformers import GPT2Config, GPT2LMHeadModel

from assay.benchmarks import prompts
from assay.benchmarks.descents import Case, fits, ready
from assay.harness.inversion import Target, token_by_token
from assay.harness.models.subject import Subject

MODELS = ["reference"]
ROUNDS = 3
BATCHES, LENGTHS, VOCABULARIES = (1, 4, 16, 64), (5, 10, 20, 40, 80, 160), (1024, 4096, 16384)


@pytest.mark.parametrize("axis", ["batch", "length", "depth"])
def test_descent_scaling(benchmark, report, model, stopwatch, axis):
    cases = {
        "batch": [replace(Case(), rows=rows) for rows in BATCHES],
        "length": [Case(rows=4, tokens=n) for n in LENGTHS if n <= (model.context or n)],
        "depth": [Case(depth=depth) for depth in range(1, model.layers + 1)],
    }[axis]
    points = {}

    def every():
        for case in cases:
            if case.rows > fits(model, case):
                continue
            with ready(model, case) as descent:
                descent.call()
                assert descent.descended
                laps = [stopwatch.lap(descent.call).seconds for _ in range(ROUNDS)]
            size = {"batch": case.rows, "length": case.tokens, "depth": case.depth}[axis]
            points[size] = [descent.seconds_per_prompt(seconds) for seconds in laps]

    benchmark.pedantic(every)
    keep(report, f"descent, {model.name}", axis, points)


@pytest.mark.parametrize("method", ["ranked", "exhaustive"])
def test_search_over_vocabulary(benchmark, report, device, stopwatch, method):
    points = {}

    def every():
        for size in VOCABULARIES:
            call = searching(method, size, device)
            call()
            points[size] = [stopwatch.lap(call).seconds for _ in range(ROUNDS)]

    benchmark.pedantic(every)
    keep(report, method, "vocabulary", points)


def searching(method: str, vocabulary: int, device) -> Callable[[], token_by_token.SearchResult]:
    """Search for one prompt in a small untrained model of a ``vocabulary``."""
    config = GPT2Config(vocab_size=vocabulary, n_embd=64, n_layer=2, n_head=4, n_positions=64)
    torch.manual_seed(0)
    model = Subject(f"untrained, {vocabulary}", GPT2LMHeadModel(config).eval().to(device), None)
    model.model.requires_grad_(False)
    target, ids = Target(2), prompts.fixed(model, 1, 8)
    goal, find = target.output(model, ids), getattr(token_by_token, method)
    assert find(model, target, goal).ids.equal(ids)
    return lambda: find(model, target, goal)


def keep(report, what: str, axis: str, points: Mapping[int, list[float]]) -> None:
    """Report the exponent by which time per prompt grows, and its points."""
    exponent, low, high = fitted(points)
    report.also(axis=axis, exponent=exponent, interval=[low, high], points=points)
    report.figure(f"{what}, over {axis}", "exponent of time", np.array([low, exponent, high]))


def fitted(points: Mapping[int, list[float]]) -> tuple[float, float, float]:
    """The slope of log time over log size with its 95 % interval (least squares).

    Each size is one point, its median: rounds of one size share their deviation from a power.
    """
    x, y = np.log([(size, np.median(seconds)) for size, seconds in points.items()]).T
    line = stats.linregress(x, y)
    wide = stats.t.ppf(0.975, len(x) - 2) * line.stderr
    return float(line.slope), float(line.slope - wide), float(line.slope + wide)
