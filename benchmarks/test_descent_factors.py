"""Descent with one thing at a time changed: depth, head, batch, arithmetic, runner."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest

from assay.benchmarks import limits
from assay.benchmarks.descents import Case, fits, ready
from assay.harness.results.errors import BadInput

MODELS = ["reference"]
ROUNDS = 5
USUAL = Case()

CASES = {
    "all blocks, 16 prompts": USUAL,
    "one block": replace(USUAL, depth=1),
    "half of the blocks": replace(USUAL, depth=-1),
    "with head": replace(USUAL, through="head"),
    "1 prompt": replace(USUAL, rows=1),
    "4 prompts": replace(USUAL, rows=4),
    "64 prompts": replace(USUAL, rows=64),
    "256 prompts": replace(USUAL, rows=256),
    "1024 prompts": replace(USUAL, rows=1024),
    "tf32": replace(USUAL, arithmetic="tf32"),
    "bfloat16": replace(USUAL, arithmetic="bfloat16"),
    "1024 prompts, tf32": replace(USUAL, rows=1024, arithmetic="tf32"),
    "1024 prompts, bfloat16": replace(USUAL, rows=1024, arithmetic="bfloat16"),
    "eager": replace(USUAL, runner="eager"),
    "replayed": replace(USUAL, runner="replay"),
    "CUDA graph": replace(USUAL, runner="graph"),
}

SLOWEST = {"cpu": 256}
"""Most rows worth their time, by the kind of device: utilisation no longer grows there."""


@pytest.mark.parametrize("name", CASES)
def test_descent_factor(race, report, model, ceilings, stopwatch, name):
    case = CASES[name]
    if case.depth < 0:
        case = replace(case, depth=max(1, model.layers // 2))
    unfit(model, case)
    try:
        ceiling = ceilings(case.computed_in(model))
        if on_gpu := model.device.type != "cpu":
            limits.forget_peak(model.device)
        with ready(model, case, stopwatch) as descent:
            descent.call()
            assert descent.descended, "something was not descended"
            peak = limits.peak(model.device) if on_gpu else None
            rounds = race(descent.call, ROUNDS, ceilings={"product": ceiling})
    except BadInput as why:
        pytest.skip(str(why))
    rates = descent.flops / rounds.seconds
    title = f"descent, {model.name}, {name}"
    report.figure(title, "token-steps / s", descent.token_steps / rounds.seconds)
    report.figure(title, "of the best product", rates / np.array(rounds.others["product"]))
    report.also(
        case=asdict(case)
        | {
            "depth": case.target(model).depth,
            "steps": case.steps,
            "arithmetic": case.computed_in(model),
        },
        model=model.name,
        flops=descent.flops,
        token_steps=descent.token_steps,
        token_steps_per_second=float(descent.token_steps / np.median(rounds.seconds)),
        utilisation=float(np.median(rates / np.array(rounds.others["product"]))),
        best_product=ceiling.best,
        product_size=ceiling.size,
        set_up_seconds=descent.set_up,
        peak_bytes=peak,
    )


def unfit(model, case):
    """Skip a case that the machine has no room or time for, by name."""
    room, slowest = fits(model, case), SLOWEST.get(model.device.type)
    if case.rows > room:
        pytest.skip(f"too little memory: {room} prompts fit, and not {case.rows}")
    if slowest is not None and case.rows > slowest:
        pytest.skip(f"{case.rows} prompts take too long on a {model.device.type}")
