"""Undoing a head: the states that logits were made of, or a refusal."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from assay.harness.inversion.head import inverse, without_head
from assay.harness.inversion.target import Target
from assay.harness.models.reference.tolerances import distance
from assay.harness.models.subject import Subject
from assay.harness.results.errors import BadInput
from assay.harness.tests.support.toys import fresh, prompt, toy

MODELS = ("gpt2", "opt", "llama", "bert", "albert", "t5")
"""Tied and not, with a bias and without, in the factor of an embedding, scaled before."""


def undone(subject: Subject, target: Target, n: int = 5) -> torch.Tensor:
    """How far the states that are found [2, n] are from those before the head."""
    ids = prompt(subject, n)
    before, states = without_head(subject, target, target.output(subject, ids))
    return distance(states, before.output(subject, ids))


def with_head(weight: torch.Tensor, bias: torch.Tensor | None = None) -> Subject:
    subject = fresh("llama")
    head = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    head.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        head.bias = nn.Parameter(bias, requires_grad=False)
    subject.model.set_output_embeddings(head)
    return subject


def weight() -> torch.Tensor:
    return toy("llama").model.get_output_embeddings().weight.detach().clone()


@pytest.mark.parametrize("model_type", MODELS)
def test_logits_tell_what_the_head_was_given(model_type):
    subject = toy(model_type)
    target = Target(subject.layers, "logits")
    assert undone(subject, target).max() < 1e-5
    ids = prompt(subject, 5)
    before, states = without_head(subject, target, target.output(subject, ids))
    assert before == Target(subject.layers, "norm")
    assert states.dtype == torch.float32
    assert distance(states.flip(1), before.output(subject, ids)).max() > 0.1


@pytest.mark.parametrize("model_type", ["gpt2", "llama", "bloom"])
@pytest.mark.parametrize("slip", [False, True])
def test_abbreviated_models_tell_their_last_block_s_state(model_type, slip):
    slip = slip and model_type != "bloom"
    subject = toy(model_type)
    for depth in range(subject.layers + 1):
        target = Target(depth, "head", slip)
        wanted = target.output(subject, prompt(subject, 5))
        assert without_head(subject, target, wanted)[0] == Target(depth, "block", slip)
        assert undone(subject, target).max() < 1e-5


@pytest.mark.parametrize("through", ["block", "norm"])
def test_without_a_head_nothing_is_undone(through):
    subject, target = toy("gpt2"), Target(2, through)
    wanted = target.output(subject, prompt(subject))
    before, states = without_head(subject, target, wanted)
    assert before is target
    assert states is wanted


def test_a_bias_is_taken_off():
    bias = torch.linspace(-3, 3, 101)
    subject = with_head(weight(), bias)
    target, ids = Target(2, "logits"), prompt(toy("llama"), 5)
    assert undone(subject, target).max() < 1e-5
    logits = target.output(subject, ids)
    states = without_head(subject, target, logits + bias)[1]
    assert distance(states, Target(2, "norm").output(subject, ids)).max() > 0.1


def test_a_missing_rank_is_refused():
    holed = weight()
    holed[:, 3] = 0
    for through in ("head", "logits"):
        target = Target(2, through)
        with pytest.raises(BadInput, match="head: its rank is 31 of 32 "):
            undone(with_head(holed), target)
        assert undone(with_head(weight()), target).max() < 1e-5


def test_a_poor_condition_is_no_missing_rank():
    poor = weight()
    poor[:, 3] *= 1e-4
    subject = with_head(poor)
    assert inverse(subject).condition > 1e3
    assert undone(subject, Target(2, "logits")).max() < 1e-2


@pytest.mark.parametrize("model_type", ["gemma2", "cohere"])
def test_logits_that_are_not_the_head_s_alone_are_refused(model_type):
    """Capped, and scaled."""
    subject = toy(model_type)
    with pytest.raises(BadInput, match=f"head: tiny:{model_type} caps or scales the logits"):
        undone(subject, Target(2, "logits"))
    assert undone(subject, Target(2, "head")).max() < 1e-5
