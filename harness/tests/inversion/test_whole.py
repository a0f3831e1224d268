"""Exact inversion by whole prompts: few passes, any length, and progress whatever the guess."""

from __future__ import annotations

import pytest
import torch

from assay.fixtures import texts
from assay.harness.checking.draws import Draws
from assay.harness.inversion import (
    Target,
    exact,
    invert,
    token_by_token,
    whole_prompts,
)
from assay.harness.inversion.linear import LinearMap
from assay.harness.results.errors import BadInput
from assay.harness.tests.support.toys import fresh, prompt, toy


@pytest.mark.parametrize(("source", "depth"), [(texts.TEXT, 4), (texts.RANDOM, 1)])
def test_a_trained_model_s_prompts_are_found_in_few_passes(source, depth):
    subject, target = toy("reference:large"), Target(depth)
    draw = texts.text if source == texts.TEXT else texts.random
    ids = draw(subject, Draws(0, "whole prompts", range(32)), 20)
    result = exact(subject, target, target.output(subject, ids))
    assert torch.equal(result.ids, ids)
    assert bool(result.verified.all())
    assert float(result.passes.double().mean()) <= 2.5
    slow = token_by_token.ranked(subject, target, target.output(subject, ids[:1]))
    assert int(slow.passes[0]) >= 2 * 20
    assert int(result.tried.sum()) < 0.5 * 32 * int(slow.tried.sum())


@pytest.mark.parametrize("model_type", ["gpt2", "llama", "gemma2", "jamba"])
def test_prompts_as_long_as_the_context_are_found(model_type):
    subject, target = toy(model_type), Target(2)
    ids = prompt(subject, min(64, subject.context or 64), batch=2)
    result = exact(subject, target, target.output(subject, ids))
    assert torch.equal(result.ids, ids)
    assert bool(result.verified.all())


def test_prompts_of_unlike_lengths_are_found_together():
    subject, target = toy("reference:small"), Target(2)
    ids, lengths = prompt(subject, 12, batch=4), [12, 1, 7, 5]
    goal = target.output(subject, ids)
    for row, length in enumerate(lengths):
        goal[row, length:] = 1e3
    result = invert(subject, target, goal, lengths=lengths)
    assert bool(result.verified.all())
    for row, length in enumerate(lengths):
        assert torch.equal(result.ids[row, :length], ids[row, :length])
        assert not result.ids[row, length:].any()
        assert not result.tried[row, length:].any()
        alone = exact(subject, target, goal[row : row + 1, :length])
        assert torch.equal(alone.ids[0], ids[row, :length])


@pytest.mark.parametrize(
    ("method", "lengths", "words"),
    [
        ("exact", [3], "2 numbers from 1 to 4 are needed"),
        ("exact", [0, 4], "2 numbers from 1 to 4 are needed"),
        ("exact", [5, 4], "2 numbers from 1 to 4 are needed"),
        ("token-by-token", [3, 4], "prompts of one length"),
    ],
)
def test_lengths_that_are_none_are_refused(method, lengths, words):
    subject, target = toy("gpt2"), Target(1)
    goal = target.output(subject, prompt(subject, 4))
    with pytest.raises(BadInput, match=words):
        invert(subject, target, goal, method, lengths=lengths)


@pytest.mark.parametrize("rounds", [(1, 2), (8, 64, 512)])
def test_whatever_is_guessed_the_prompt_is_found(monkeypatch, rounds):
    """Where two guesses at a place fail, it is searched as token by token."""
    subject, target = fresh("gpt2"), Target(2)
    ids = prompt(subject, 10)
    goal = target.output(subject, ids)
    draw = torch.Generator().manual_seed(99)

    def guess(known: LinearMap, *which: torch.Tensor) -> torch.Tensor:
        return torch.randint(subject.vocabulary, which[-1].shape[:2], generator=draw)

    monkeypatch.setattr(LinearMap, "likeliest", guess)
    monkeypatch.setattr(LinearMap, "likelier", guess)
    monkeypatch.setattr(token_by_token, "ROUNDS", rounds)
    result = exact(subject, target, goal)
    assert torch.equal(result.ids, ids)
    assert bool(result.verified.all())
    assert int(result.passes.min()) > 10


def test_wrong_tokens_behind_each_other_are_replaced_together(monkeypatch):
    """Long text has many places where the map is off by much: they cost no pass each."""
    subject = toy("reference:large")
    target = Target(subject.layers)
    ids = texts.text(subject, Draws(0, "whole prompts", range(8)), 128)
    goal = target.output(subject, ids)
    made = exact(subject, target, goal)
    monkeypatch.setattr(whole_prompts, "UNUSUAL", float("inf"))
    one_by_one = exact(subject, target, goal)
    assert torch.equal(made.ids, ids)
    assert torch.equal(one_by_one.ids, ids)
    assert int(made.passes.sum()) < int(one_by_one.passes.sum())
