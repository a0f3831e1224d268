"""Replays of a step against the step itself: equal to the bit, or not replayed at all."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch

from assay.harness.inversion import Rule, Target, descend, replay
from assay.harness.inversion.batch import Batch
from assay.harness.inversion.descent import choose_runner
from assay.harness.models.reference.rounding import Rounding
from assay.harness.models.subject.clock import Braked, ForwardClock
from assay.harness.results.errors import BadInput
from assay.harness.tests.support.toys import fresh, prompt, toy

X = torch.linspace(-1, 1, 12).reshape(3, 4)


def batch_of(subject, target, rows=3, steps=25):
    wanted = target.output(subject, prompt(subject, 5, rows)).detach()
    generator = torch.Generator().manual_seed(0)
    first = torch.randn(rows, 5, subject.hidden, generator=generator)
    rates = torch.full((rows,), 1e-3)
    return Batch(subject, target, Rule(steps), wanted, first, rates, "replay")


@pytest.mark.parametrize("rounded", [False, True], ids=["plain", "rounded"])
@pytest.mark.parametrize(
    ("spec", "target"),
    [
        *(("gpt2", Target(2, slip=True)), ("llama", Target(2, "logits")), ("bert", Target(1))),
        *(("mamba", Target(1)), ("t5", Target(1)), ("gemma2", Target(2, "norm"))),
    ],
    ids=str,
)
def test_a_replayed_step_is_the_step(spec, target, rounded):
    batch = batch_of(toy(spec), target)
    with Rounding(3) if rounded else nullcontext():
        replayed = replay.replayed(batch._slope, batch.x)
        assert replayed != batch._slope
        for x in (batch.x, torch.randn_like(batch.x)):
            for one, other in zip(replayed(x), batch._slope(x), strict=True):
                # Rounding may hang on addresses, and they differ.
                assert torch.allclose(one, other, rtol=1e-5, atol=1e-6 * other.abs().max())


@pytest.mark.parametrize("spec", ["gpt2", "mixtral"])
def test_a_replayed_descent_is_the_descent(spec):
    """Tokens of mixtral go to the experts that their own states choose."""
    batch = batch_of(toy(spec), Target(1), steps=60)
    one, other = (
        descend(
            *(batch.subject, batch.target, batch.goal, batch.x, batch.rates, Rule(60)),
            runner=runner,
        )
        for runner in ("eager", "replay")
    )
    assert torch.allclose(one.losses, other.losses, rtol=1e-4)
    assert torch.allclose(one.embeddings, other.embeddings, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("runner", "why"), [("graph", "needs CUDA"), ("fast", "choose from eager, replay, graph")]
)
def test_a_runner_that_is_unavailable_is_refused(runner, why):
    with pytest.raises(BadInput, match=why):
        choose_runner(runner, torch.device("cpu"))


def branching(x):
    return (x * 2 if x.sum() > 0 else x * 3,)


def choosing(x):
    return (x[x > 0].sum() * x,)


def drawing(x):
    return (x * torch.rand_like(x),)


KEPT = torch.zeros(3, 4)


def keeping(x):
    return (KEPT.add_(x) * 1.0,)


def reading(x):
    # Behind torch's back: no operation reads the numbers.
    return (x * float(x.detach().numpy()[0, 0]),)


def constant(x):
    return (torch.ones(3),)


@pytest.mark.parametrize("function", [branching, choosing, drawing, keeping, reading, constant])
def test_what_may_do_otherwise_for_other_numbers_is_run_itself(function):
    assert replay.replayed(function, X) is function


def test_a_planted_fault_may_count_passes_and_is_not_replayed():
    subject = fresh("gpt2")
    subject.injected = object()
    batch = batch_of(subject, Target(1))
    batch.stepper()
    assert batch.slope == batch._slope


def test_the_brake_strikes_between_replayed_steps():
    subject = fresh("gpt2")
    clock = ForwardClock(brake=60.0)
    with clock.watching(subject):
        batch = batch_of(subject, Target(1), steps=100)
        advance = batch.stepper()
        clock.brake = 0.0
        advance()  # no pass that the clock sees
        with pytest.raises(Braked):
            batch.run(torch.zeros(3), False, ())
