"""Targets: each is what a slow, whole pass gives, no more is computed, and a head is undone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.harness.inversion import Target, head_inverse, without_head
from assay.harness.models.reference.tolerances import distance
from assay.harness.models.subject import Subject
from assay.harness.results.errors import BadInput
from assay.harness.tests.support.descents import same_output
from assay.harness.tests.support.toys import fresh, prompt, toy

MODELS = ("gpt2", "llama", "gemma2", "mamba", "mixtral", "bert", "albert", "t5")


def states(subject: Subject, ids: Tensor) -> list[Tensor]:
    """What every block of one whole pass is given, and what the last one leaves."""
    before: list[Tensor] = []
    after: list[Tensor] = []

    def enter(module: Any, arguments: tuple, named: dict) -> None:
        before.append(arguments[0] if arguments else named["hidden_states"])

    def leave(module: Any, arguments: tuple, result: Any) -> None:
        after.append(result[0] if isinstance(result, tuple) else result)

    hooks = [
        hook
        for block in subject.blocks
        for hook in (
            block.register_forward_pre_hook(enter, with_kwargs=True),
            block.register_forward_hook(leave),
        )
    ]
    subject.rows(ids)
    for hook in hooks:
        hook.remove()
    return [*before, after[-1]]


# What it is.


@pytest.mark.parametrize("model_type", MODELS)
def test_a_block_s_output_is_the_state_in_a_whole_pass(model_type):
    subject = toy(model_type)
    ids = prompt(subject)
    whole = states(subject, ids)
    assert len(whole) == subject.layers + 1
    for depth, state in enumerate(whole):
        assert torch.equal(Target(depth).output(subject, ids), state)
        assert not same_output(Target(depth).output(subject, ids.flip(1)), state)
        assert not any(same_output(state, other) for other in whole[depth + 1 :])


# Bad input.


BAD = [
    ("gpt2", Target(3), "depth 3: tiny:gpt2 has 2 blocks"),
    ("gpt2", Target(-1), "depth -1: tiny:gpt2 has 2 blocks"),
    ("gpt2", Target(1, "loss"), "unknown target 'loss': choose from block, head, norm, logits"),
    ("gpt2", Target(1, "norm"), "target norm: comes after all 2 blocks"),
    ("gpt2", Target(0, "logits"), "target logits: comes after all 2 blocks"),
]


@pytest.mark.parametrize(("model_type", "target", "words"), BAD)
def test_what_a_model_has_not_is_one_clear_line(model_type, target, words):
    with pytest.raises(BadInput, match=words) as raised:
        target.check(toy(model_type))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("through", ["head", "norm", "logits"])
def test_without_an_output_embedding_only_blocks_are_targets(through):
    subject = Subject("body", toy("gpt2").model.base_model)
    with pytest.raises(BadInput, match=f"target {through}: body has no output embedding"):
        Target(2, through).check(subject)
    Target(2).check(subject)


def test_a_head_of_another_width_than_the_states_takes_none_of_them():
    narrow = toy("albert")
    narrow_head = narrow.model.get_output_embeddings().weight.shape[1]
    assert narrow_head != narrow.config.hidden_size
    with pytest.raises(BadInput, match="target head: tiny:albert projects its states"):
        Target(1, "head").check(narrow)


# A head that is undone.


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
    assert head_inverse(subject).condition > 1e3
    assert undone(subject, Target(2, "logits")).max() < 1e-2


@pytest.mark.parametrize("model_type", ["gemma2", "cohere"])
def test_logits_that_are_not_the_head_s_alone_are_refused(model_type):
    """Capped, and scaled."""
    subject = toy(model_type)
    with pytest.raises(BadInput, match=f"head: tiny:{model_type} caps or scales the logits"):
        undone(subject, Target(2, "logits"))
    assert undone(subject, Target(2, "head")).max() < 1e-5
