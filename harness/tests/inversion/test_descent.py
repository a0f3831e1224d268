"""Descents against slow ones: the document's loop, torch's optimisers, one row at a time."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from assay.harness.inversion import (
    DISTANCES,
    Rule,
    Target,
    descend,
    start,
)
from assay.harness.inversion.batch import SCHEDULES
from assay.harness.inversion.descent import slow_descent
from assay.harness.models.subject import Subject
from assay.harness.results.errors import BadInput
from assay.harness.tests.support.toys import prompt, toy

STEPS = 8


def task(spec: str, target: Target, rows: int = 2) -> tuple[Subject, Target, Tensor, Tensor]:
    """What `descend` takes but for rates, in float64: noise, on its way to a prompt."""
    subject = toy(spec, "float64")
    generator = torch.Generator().manual_seed(1)
    normal = torch.randn(rows, 5, subject.hidden, generator=generator, dtype=torch.float64)
    wanted = target.output(subject, prompt(subject, 5, rows)).detach()
    return subject, target, wanted, start.scaled(subject, normal)


def rates_for(inputs: tuple[Subject, Target, Tensor, Tensor], rule: Rule) -> Tensor:
    """A step size for each row, none like another: [rows]."""
    unit = start.unit(*inputs, rule)
    return 0.1 * unit * torch.arange(1, len(inputs[3]) + 1, dtype=torch.float64)


NARROW = ("llama", "t5")
"""Models that compute norms in float32 whatever their dtype is."""


def same(one: Tensor, other: Tensor, model_type: str = "gpt2") -> bool:
    # A sum of absolute values has a gradient of signs, which rounding turns over near 0.
    rtol, atol = (1e-4, 1e-4) if model_type in NARROW else (1e-9, 1e-10)
    return torch.allclose(one, other, rtol=rtol, atol=atol)


def step_by_step(
    inputs: tuple[Subject, Target, Tensor, Tensor], row: int, rate: float, rule: Rule
) -> Tensor:
    """The embeddings [n, d] that torch's own optimiser and distance come to, for one row."""
    subject, target, wanted, x = inputs
    x = x[row].clone().requires_grad_()
    optimiser = {"descent": torch.optim.SGD, "adam": torch.optim.Adam}[rule.optimiser]([x])
    power = {"l1": 1, "l2": 2}[rule.distance]
    for step in range(rule.steps):
        done = step / rule.steps
        left = {
            "constant": 1.0,
            "linear": 1 - 0.9 * done,
            "cosine": 0.1 + 0.9 * math.cos(math.pi * done / 2) ** 2,
        }[rule.schedule]
        optimiser.param_groups[0]["lr"] = rate * left
        optimiser.zero_grad()
        off = target.output(subject, embeddings=x[None])[0] - wanted[row]
        torch.linalg.vector_norm(off, power).backward()
        optimiser.step()
    return x.detach()


# The document's loop.


@pytest.mark.parametrize(
    ("model_type", "target"),
    [
        *(("gpt2", Target(0)), ("gpt2", Target(2)), ("gpt2", Target(2, slip=True))),
        *(("llama", Target(1, "head")), ("opt", Target(2, "logits")), ("t5", Target(1))),
        *(("bert", Target(2, "norm")), ("albert", Target(2, slip=True))),
    ],
    ids=str,
)
def test_every_row_and_step_is_the_document_s_loop(model_type, target):
    inputs = task(model_type, target)
    rates = rates_for(inputs, Rule())
    made = descend(*inputs, rates, Rule(STEPS, every=5))
    subject, _, wanted, begin = inputs
    for row, rate in enumerate(rates.tolist()):
        slow, losses = slow_descent(subject, target, wanted[row], begin[row], rate, STEPS)
        assert same(made.losses[row, :-1], torch.tensor(losses, dtype=torch.float64), model_type)
        assert same(made.embeddings[row], slow, model_type)
    more = 1.01 if model_type in NARROW else 1.0001
    other, _ = slow_descent(subject, target, wanted[row], begin[row], more * rate, STEPS)
    assert not same(made.embeddings[row], other, model_type)


# Optimisers, distances, schedules.


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("optimiser", ["descent", "adam"])
def test_every_rule_is_torch_s_own_step_by_step(optimiser, distance, schedule):
    rule = Rule(5, optimiser, distance, schedule, every=2)
    inputs = task("gpt2", Target(1))
    rates = rates_for(inputs, rule)
    made = descend(*inputs, rates, rule).embeddings
    for row, rate in enumerate(rates.tolist()):
        assert same(made[row], step_by_step(inputs, row, rate, rule))
    assert not same(made[row], step_by_step(inputs, row, 1.0001 * rate, rule))


@pytest.mark.parametrize("name", ["optimiser", "distance", "schedule"])
def test_a_rule_that_there_is_not_is_refused(name):
    with pytest.raises(BadInput, match=f"unknown {name} 'newton': choose from "):
        Rule(**{name: "newton"})


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"every": 0}, {"steps": -3}])
def test_a_descent_takes_a_step_at_least(wrong):
    with pytest.raises(BadInput, match="at least 1 is needed"):
        Rule(**wrong)


# The model.


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_model_in_16_bits_is_descended_on_in_32(dtype):
    subject, target = toy("gpt2", dtype), Target(1)
    ids = prompt(subject, 5)
    begin = start.scaled(
        subject, torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(0))
    )
    wanted = target.output(subject, ids)
    unit = start.unit(subject, target, wanted, begin, Rule())
    made = descend(subject, target, wanted, begin, torch.full((2,), 0.3 * unit), Rule(50))
    assert made.embeddings.dtype == torch.float32
    assert bool((made.final < 0.7 * made.losses[:, 0]).all())
    rounded = made.embeddings.to(subject.dtype).float()
    assert not torch.equal(made.embeddings, rounded)
