"""Exact search against trying the whole vocabulary."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import operations, prompts
from harness.inversion import search
from harness.inversion.target import Target
from harness.subject import Subject

MODELS = ["reference", "untrained:large:0"]
ROUNDS = 3
PLACES = {1: 20, 16: 4}
"""For so many prompts, tokens that the whole vocabulary is tried for in a round: the first ones,
which cost least.  At least one, and no more than `AFFORDED` operations go into them."""

AFFORDED = {"cpu": 2e12, "cuda": 2e15}
"""Operations of a round of trying everything, by the kind of device."""


@pytest.mark.parametrize("rows", [1, 16])
def test_exact(race, report, stopwatch, model, rows):
    model = Subject(model.name, model.model, model.tokenizer, model.digest)  # knows no ranking yet
    target, ids = Target(model.layers), prompts.fixed(model, rows)
    wanted = target.of(model, ids)
    each = 2 * operations.weights(model, target) * model.vocabulary * rows
    places = max(1, min(PLACES[rows], int(AFFORDED.get(model.device.type, 2e12) / each)))
    set_up = stopwatch.lap(lambda: search.ranking(model, target)).seconds

    def ours():
        return search.exact(model, target, wanted)

    def exhaustive():
        return search.exhaustive(model, target, wanted[:, :places])

    found, slow = ours(), exhaustive()
    assert found.ids.equal(ids), "not every token is right"
    assert found.verified.all()
    assert slow.ids.equal(ids[:, :places])

    rounds = race(ours, ROUNDS, {"exhaustive": exhaustive})
    name = f"exact, {rows} prompt{'s' * (rows > 1)}, {model.name}"
    times = rounds.times("exhaustive", ids.shape[1] / places)
    report.figure(name, "× exhaustive", times, 20)
    tried = 100 * found.tried.double().mean().item() / model.vocabulary
    report.figure(name, "% of the vocabulary", np.array([tried]), 2, at_most=True)
    report.also(
        right=1.0,
        seconds_per_prompt=float(np.median(rounds.seconds) / rows),
        seconds_per_prompt_exhaustive=float(
            np.median(rounds.others["exhaustive"]) / rows * ids.shape[1] / places
        ),
        set_up_seconds=set_up,
        set_up_states=found.set_up,
    )
