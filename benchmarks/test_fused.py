"""A step of descent with GPT-2's activation in one operation, and as the model writes it."""

from __future__ import annotations

from contextlib import nullcontext

import torch

from assay.benchmarks.descents import Case, ready
from assay.harness.inversion import batch

MODELS = ["geometry:gpt2"]
ROUNDS = 5
CASE = Case(depth=2)


def test_fused_activations(race, report, monkeypatch, stopwatch, model):
    with ready(model, CASE, stopwatch) as fused:
        fused.call()
        monkeypatch.setattr(batch, "fused_activations", lambda subject, blocks: nullcontext())
        with ready(model, CASE, stopwatch) as written:
            written.call()
            one, other = (each.batch.losses[: CASE.steps] for each in (fused, written))
            assert torch.allclose(one, other, rtol=1e-3), "they descend to other losses"
            rounds = race(fused.call, ROUNDS, {"as written": written.call})
    name = f"descent, {CASE.rows} prompts, {CASE.depth} blocks, {model.name}"
    report.figure(name, "× activations as written", rounds.times("as written"))
