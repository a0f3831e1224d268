"""How soon descent recovers prompts: rates at fixed steps and seconds, time to exactness."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from assay.benchmarks import prompts
from assay.benchmarks.descents import Case, begun, fits
from assay.harness.inversion import Rule, Target, decode, descend, start

MODELS = ["reference", "untrained:large:0"]
ROWS, STEPS = 64, 200
WATCHED = (1, 2, 5, 10, 15, 20, 30, 40, 50, 75, 100, 150, 200)
FIXED_STEPS, FIXED_SECONDS = (10, 20, 50, 100, 200), (1, 3, 10, 30)
RATE = 0.3
"""In units of `start.unit`."""


@pytest.mark.parametrize("depth", ["1 block", "all blocks"])
def test_recovery(benchmark, report, model, stopwatch, depth):
    target = Target(1 if depth == "1 block" else model.layers)
    rows = min(ROWS, fits(model, Case(depth=target.depth)))
    ids, rule = prompts.fixed(model, rows), Rule(steps=STEPS)
    goal, first = target.output(model, ids).detach(), begun(model, ids)
    rate = RATE * start.unit(model, target, goal[:2], first[:2], rule)
    rates = torch.full((rows,), rate, device=model.device)
    descents = []

    def run():
        descents.append(descend(model, target, goal, first, rates, rule, watch=WATCHED))

    lap = benchmark.pedantic(stopwatch.lap, args=(run,), rounds=1, iterations=1)
    descent, each = descents[0], lap.seconds / STEPS
    assert (descent.final < descent.losses[:, 0]).all(), "something was not descended"
    right = {step: (decode(model, descent.watched[step]) == ids).cpu() for step in WATCHED}
    name = f"recovery, {model.name}, {rows} prompts, {depth}"
    for step in FIXED_STEPS:
        report.also(**{f"after {step} steps": rates_of(right[step])})
    for seconds in FIXED_SECONDS:
        steps_done = [step for step in WATCHED if step * each <= seconds]
        if steps_done:
            report.also(**{f"after {seconds} s": rates_of(right[steps_done[-1]])})
    exact = first_exact(right) * each
    report.figure(
        name, f"exact after {STEPS} steps", right[STEPS].all(1).double().mean().numpy()[None]
    )
    for share in (0.5, 0.9):
        until = float(np.quantile(exact, share, method="higher"))
        value = until if np.isfinite(until) else None
        if value is not None:
            words = {0.5: "half", 0.9: "nine tenths"}[share]
            report.figure(name, f"seconds until {words} are exact", np.array([value]))
        report.also(**{f"seconds until {share:.0%} of prompts are exact": value})
    report.also(censored_at=STEPS * each, seconds_per_step=each, rate=rate)


def first_exact(right):
    """The first watched step with every token of a row right; infinite if none: [rows]."""
    steps = np.array(sorted(right))
    exact = np.stack([right[step].all(1).numpy() for step in steps], axis=1)
    return np.where(exact.any(1), steps[exact.argmax(1)], np.inf)


def rates_of(right):
    """The shares of tokens and of whole prompts that are right, with Wilson's 95 % intervals."""
    rates = {}
    for name, hits in (("tokens", right.flatten()), ("exact", right.all(1))):
        test = stats.binomtest(int(hits.sum()), len(hits))
        low, high = test.proportion_ci(0.95, method="wilson")
        rates[name] = [test.statistic, float(low), float(high)]
    return rates
