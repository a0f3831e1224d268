"""Toys that attend to the future: against plain training, and what their claim would reject."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from assay.claims.cache import test_future as claims
from assay.harness.operations import future
from assay.harness.operations.future import (
    BOTH,
    LABELLED,
    LEFT,
    LENGTH,
    NOISE,
    SYMBOLS,
    WIDTH,
    Task,
)
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.toys import toy, verdict

SEEDS = (3, 14, 15, 92)

CLAIM = claims.test_attending_to_the_future_lowers_the_loss

AHEAD = torch.tensor([False, True])


def plain(weights, tokens, ahead):
    """The logits [rows, asked, classes] of one toy, with torch's own attention."""
    x = weights["tokens"][tokens] + weights["places"]
    q, k, v = (
        part.unflatten(-1, (future.HEADS, -1)).transpose(1, 2)
        for part in (x @ weights["attention"]).split(WIDTH, dim=-1)
    )
    attended = (
        F.scaled_dot_product_attention(q, k, v, is_causal=not ahead).transpose(1, 2).flatten(2)
    )
    return ((x + attended @ weights["out"]) @ weights["unembed"] + weights["bias"])[:, LABELLED]


def loss_of(weights, task, tokens, ahead):
    logits = plain(weights, tokens, ahead).flatten(0, 1)
    return F.cross_entropy(logits, future.labels(task, tokens).flatten())


def alone(task, seed, ahead, steps):
    """The held-out loss of one toy after an ordinary training loop."""
    weights = {name: w.requires_grad_() for name, w in future.draw_weights(seed).items()}
    tokens = future.sequences(task, seed ^ 1, steps * future.ROWS + future.HELD_OUT)
    optimiser = torch.optim.Adam(weights.values(), lr=future.RATE)
    for batch in tokens[future.HELD_OUT :].split(future.ROWS):
        optimiser.zero_grad()
        loss_of(weights, task, batch, ahead).backward()
        optimiser.step()
    return float(loss_of(weights, task, tokens[: future.HELD_OUT], ahead).detach())


@pytest.mark.parametrize("task", [LEFT, BOTH, NOISE], ids=str)
def test_training_together_is_training_alone(task):
    together = future.train(task, SEEDS, at=(10,))[10]
    for ahead, losses in enumerate(together):
        for seed, loss in zip(SEEDS, losses.tolist(), strict=True):
            assert loss == pytest.approx(alone(task, seed, bool(ahead), 10), abs=1e-3)
            assert loss != pytest.approx(alone(task, seed, not ahead, 10), abs=1e-3)


def test_labels_name_the_tokens_that_they_need():
    tokens = torch.tensor([[0, 1, 2, 0, 1, 2, 2, 1]])
    assert future.labels(LEFT, tokens).tolist() == [[1, 5, 6, 1, 5]]
    assert future.labels(BOTH, tokens).tolist() == [[3, 7, 2, 5, 7]]


@pytest.mark.parametrize(("task", "alike"), [(NOISE, 1 / 3), (LEFT, 2 / 3), (BOTH, 2 / 3)])
def test_neighbours_are_alike_unless_the_future_is_noise(task, alike):
    tokens = future.sequences(task, 5, 4000)
    assert tokens.shape == (4000, LENGTH)
    same = (tokens[:, 1:] == tokens[:, :-1]).double().mean(0)
    assert same == pytest.approx(torch.full_like(same, alike), abs=0.04)
    counts = tokens.flatten().bincount(minlength=SYMBOLS).double() / tokens.numel()
    assert counts == pytest.approx(torch.full_like(counts, 1 / SYMBOLS), abs=0.02)


def patch_trainings(monkeypatch, gain, of_noise):
    """Trainings in which attending to the future lowers the loss by ``gain``, more or less.

    As it is seen after 500 steps; after 100 by the opposite.
    """

    def trained(task: Task, seeds, device=None):
        unmasked = 1 + torch.linspace(0, 1, len(seeds)).double()
        spread = 0.01 * torch.linspace(-1, 1, len(seeds)).double()
        lower = of_noise if task is NOISE else gain
        return {500: (unmasked + lower + spread, unmasked), 100: (unmasked - gain, unmasked)}

    monkeypatch.setattr(future, "train", trained)


@pytest.mark.parametrize(
    ("gain", "of_noise", "expected"),
    [
        (0.1, -0.1, Verdict.UPHELD),
        (-0.1, -0.1, Verdict.REFUTED),
        (0.0, -0.1, Verdict.INCONCLUSIVE),
        (0.1, 0.1, Verdict.INCONCLUSIVE),  # noise helps, too: something else is measured
    ],
)
def test_c12_hangs_on_both_trainings(monkeypatch, gain, of_noise, expected):
    patch_trainings(monkeypatch, gain, of_noise)
    result = verdict(CLAIM, toy("reference:small"), arguments={"task": LEFT, "steps": 500})
    assert result.verdict is expected


def test_what_lies_ahead_is_learned_without_a_mask_only():
    """A label of tokens to the right is out of a masked toy's sight, and within the other's."""
    masked, unmasked = future.train(Task((1, 1), stay=0.0), SEEDS, at=(100,))[100]
    assert float(masked.min()) > 1.0  # log 3 = 1.10 is chance
    assert float(unmasked.median()) < 0.1
