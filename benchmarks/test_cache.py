"""A step with the cache against computing the past again, over lengths (document 004)."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from assay.harness.operations import flops

MODELS = ["geometry:rotary-small"]
LENGTHS = (64, 256, 1024, 4096)
ROUNDS = 5
WARM = 3
"""Calls before the first round; each needs a cache of its own."""


@pytest.mark.parametrize("length", LENGTHS)
def test_cached_step(race, report, model, length):
    if model.context is not None and length > model.context:
        pytest.skip(f"{model.name} has a context of {model.context}")
    ids = torch.arange(length, device=model.device)[None] * 7 % model.vocabulary
    past = model(ids[:, :-1], keep=True, states=False).cache
    again = iter([copy.deepcopy(past) for _ in range(ROUNDS + 1 + WARM)])

    def cached():
        return model(ids[:, -1:], cache=next(again), keep=True, states=False).rows["logits"]

    def recomputed():
        return model(ids, states=False).rows["logits"][:, -1:]

    off = 1e-3 if model.dtype == torch.float32 else 0.1
    assert torch.allclose(cached(), recomputed(), rtol=off, atol=off)
    rounds = race(cached, ROUNDS, {"recomputed": recomputed}, warm=WARM)
    counted = flops.count_cached_step(model, ids), flops.count_pass(model, ids)
    name = f"a step at {length} tokens, {model.name}"
    report.figure(name, "× recomputation", rounds.times("recomputed"))
    report.also(
        length=length,
        flops_cached=counted[0],
        flops_recomputed=counted[1],
        times_as_many_flops=counted[1] / counted[0],
        seconds=float(np.median(rounds.seconds)),
        seconds_recomputed=float(np.median(rounds.others["recomputed"])),
    )
