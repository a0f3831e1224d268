"""Exact search against trying the whole vocabulary."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from assay.benchmarks import operations, prompts
from assay.harness.operations.inversion import token_by_token
from assay.harness.operations.inversion.set_up import linear_map
from assay.harness.operations.inversion.target import Target

MODELS = ["reference", "untrained:large:0"]
ROUNDS = 3
PLACES = {1: 20, 16: 4}
"""By number of prompts, the positions at which a round tries the whole vocabulary: the first ones,
which cost least.  At least one, and no more than `AFFORDED` operations allow."""

AFFORDED = {"cpu": 2e12, "cuda": 2e15}
"""Operations of a round of trying everything, by the kind of device."""


@pytest.mark.parametrize("rows", [1, 16])
def test_exact(race, report, stopwatch, model, rows):
    model = replace(model)  # without a cached ranking
    target, ids = Target(model.layers), prompts.fixed(model, rows)
    goal = target.output(model, ids)
    cost = 2 * operations.weights(model, target) * model.vocabulary * rows
    places = max(1, min(PLACES[rows], int(AFFORDED[model.device.type] / cost)))
    set_up = stopwatch.lap(lambda: linear_map(model, target)).seconds

    def ours():
        return token_by_token.ranked(model, target, goal)

    def exhaustive():
        return token_by_token.exhaustive(model, target, goal[:, :places])

    result, slow = ours(), exhaustive()
    assert result.ids.equal(ids), "not every token is right"
    assert result.verified.all()
    assert slow.ids.equal(ids[:, :places])

    rounds = race(ours, ROUNDS, {"exhaustive": exhaustive})
    name = f"exact, {rows} prompt{'s' * (rows > 1)}, {model.name}"
    times = rounds.times("exhaustive", ids.shape[1] / places)
    report.figure(name, "× exhaustive", times, 20)
    on_card = model.device.type == "cuda"
    each = np.array(rounds.seconds) / rows
    report.figure(name, "seconds a prompt", each, 1 if on_card else None, at_most=True)
    tried = 100 * result.tried.double().mean().item() / model.vocabulary
    report.figure(
        name, "% of the vocabulary", np.array([tried]), 0.2 if on_card else 2, at_most=True
    )
    report.also(
        right=float((result.ids == ids).double().mean()),
        seconds_per_prompt=float(np.median(rounds.seconds) / rows),
        seconds_per_prompt_exhaustive=float(
            np.median(rounds.others["exhaustive"]) / rows * ids.shape[1] / places
        ),
        set_up_seconds=set_up,
        set_up_states=result.set_up,
    )
