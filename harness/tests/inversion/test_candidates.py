"""Candidates side by side have the states that each has alone; where not, they go alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from assay.harness.inversion import Prefixes, Target, accepted, candidates
from assay.harness.inversion.candidates import branches
from assay.harness.inversion.token_by_token import exhaustive
from assay.harness.inversion.token_by_token import ranked as exact
from assay.harness.models.reference.tolerances import distance
from assay.harness.models.subject import Subject
from assay.harness.tests.support.toys import changed, prompt, toy

BRANCHING = ("gpt2", "opt", "gpt_neox", "llama", "mistral", "gemma2", "mixtral")
ALONE = ("bloom", "mamba", "t5", "gpt_neo")


def looking_back(spec: str = "gpt2") -> Subject:
    """A causal model whose first block adds to each state half of the one before it."""

    def change(state: Tensor) -> Tensor:
        before = torch.cat([torch.zeros_like(state[:, :1]), state[:, :-1]], dim=1)
        return state + 0.5 * before

    return changed(spec, change)


def after(subject: Subject, target: Target, known: Tensor, tokens: Tensor) -> Tensor:
    """The states of ``tokens`` [rows, C] after ``known`` [rows, i], one whole pass for each."""
    made = [
        target.output(subject, torch.cat([known, tokens[:, [c]]], dim=1))[:, -1]
        for c in range(tokens.shape[1])
    ]
    return torch.stack(made, dim=1)


def filled(subject: Subject, target: Target, known: Tensor) -> Prefixes:
    prefixes = Prefixes(subject, target, len(known))
    for ids in known.T:
        prefixes.append(ids)
    return prefixes


def states(prefixes: Prefixes, tokens: Tensor, rows: Tensor | None = None) -> Tensor:
    return torch.cat([part for _, part in prefixes.states(tokens, rows)], dim=1)


def same(subject: Subject, one: Tensor, other: Tensor) -> bool:
    assert one.shape == other.shape
    return bool((distance(one, other) <= accepted(subject)).all())


@pytest.mark.parametrize("model_type", [*BRANCHING, *ALONE])
def test_states_of_candidates_are_those_of_whole_prompts(model_type):
    subject = toy(model_type)
    tokens = prompt(subject, 4, seed=1)
    for depth, length in ((0, 1), (1, 3), (2, 0), (2, 7), (2, 8)):
        known, target = prompt(subject, length), Target(depth)
        made = states(filled(subject, target, known), tokens)
        slow = after(subject, target, known, tokens)
        assert same(subject, made, slow)
        assert not same(subject, made, slow.flip(1))


# A model that would go wrong.


def test_a_model_whose_candidates_would_look_at_each_other_does_not_branch():
    assert branches(toy("gpt2"))
    assert not branches(looking_back())


@pytest.mark.parametrize("method", [exact, exhaustive])
@pytest.mark.parametrize("known", [True, False])
def test_such_a_model_is_inverted_all_the_same(monkeypatch, method, known):
    """Known to be one, or found out in the midst of the search."""
    subject, target = looking_back(), Target(2)
    ids = prompt(subject, 6)
    if not known:
        monkeypatch.setattr(candidates, "branches", lambda subject: True)
    result = method(subject, target, target.output(subject, ids))
    assert torch.equal(result.ids, ids)
    assert bool(result.verified.all())
