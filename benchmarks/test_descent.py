"""Batched descent compared with the document's loop, and with the machine's products.

Two ceilings bound its arithmetic, both measured in every round: the best product of large
matrices, and the products of a step alone, of the same shapes.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from assay.benchmarks import operations, prompts
from assay.benchmarks.same_shapes import SameShapes
from assay.harness.inversion import Rule, Target, decode, descend, start
from assay.harness.inversion.batch import Batch
from assay.harness.inversion.descent import slow_descent

MODELS = ["reference"]
STEPS, ROUNDS = 40, 5
GOALS = {"cpu": (5, 0.6), "cuda": (100, 0.5)}
"""Times the loop, and share of the best products of the same shapes, by the kind of device."""

LEAST = 0.95
"""Share of tokens of the trained reference that has to be found."""

ALONE = 2
"""Prompts of the loop in a round: it takes them one by one."""


@pytest.mark.parametrize("rows", [16, 64])
@pytest.mark.parametrize("depth", ["1 block", "all blocks"])
def test_descent(race, report, stopwatch, model, ceiling, rows, depth):
    if model.dtype != torch.float32:
        pytest.skip("the document's loop is in float32")
    target = Target(1 if depth == "1 block" else model.layers)
    ids, rule = prompts.fixed(model, rows), Rule(steps=STEPS)
    goal = target.output(model, ids)
    normal = torch.randn(*ids.shape, model.hidden, generator=torch.Generator().manual_seed(0))
    first = start.scaled(model, normal.to(model.device))
    rate = 0.3 * start.unit(model, target, goal, first, rule)
    rates = torch.full((rows,), rate, device=model.device)
    trained = model.name.startswith("reference")

    def ours():
        return descend(model, target, goal, first, rates, rule).embeddings

    def others_are_found_too():
        new = prompts.fixed(model, rows, seed=1)
        wanted = target.output(model, new)
        descent = descend(model, target, wanted, first, rates, rule)
        assert (descent.final < descent.losses[:, 0]).all(), "something was not descended"
        if trained:
            assert (decode(model, descent.embeddings) == new).double().mean() >= LEAST

    def documented():
        pairs = zip(goal[:ALONE], first, strict=False)
        return torch.stack([slow_descent(model, target, w, x, rate, STEPS)[0] for w, x in pairs])

    tokens, loop_tokens = decode(model, ours()), decode(model, documented())
    right, slowly_right = ((each == ids[: len(each)]) for each in (tokens, loop_tokens))
    if trained:  # a deep untrained model is far from recovered in so few steps
        assert tokens[:ALONE].equal(loop_tokens), "the loop and the batch find other tokens"
        assert right.double().mean() >= LEAST, "most tokens should be found in so many steps"
    batch = Batch(model, target, rule, goal, first, rates)
    shapes = SameShapes(lambda: batch.slope(batch.x), stopwatch)
    rounds = race(
        *(ours, ROUNDS, {"loop": documented}, {"product": ceiling, "shapes": shapes}),
        fresh=others_are_found_too,
    )
    name = f"descent, {rows} prompts, {depth}"
    steps = rows * ids.shape[1] * STEPS
    flops = operations.of_token_step(model, target, ids.shape[1])
    rate_of_flops = steps * flops / rounds.seconds
    loop_goal, share_goal = GOALS[model.device.type]
    report.figure(name, "× the loop", rounds.times("loop", rows / ALONE), loop_goal)
    of_shapes, of_largest = (
        rate_of_flops / np.array(rounds.others[each]) for each in ("shapes", "product")
    )
    report.figure(name, "of the products of the same shapes", of_shapes, share_goal)
    report.figure(name, "of the best product", of_largest)
    report.also(
        token_steps_per_second=float(steps / np.median(rounds.seconds)),
        flops_per_token_step=flops,
        best_product=ceiling.best,
        product_size=ceiling.size,
        products_of_the_same_shapes=shapes.best,
        share_of_operations_in_them=shapes.flops / (flops * rows * ids.shape[1]),
        utilisation_of_the_run_s_best=float(np.median(rate_of_flops) / ceiling.best),
        right=float(right.double().mean()),
        right_by_the_loop=float(slowly_right.double().mean()),
    )
