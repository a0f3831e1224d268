"""The ranking of an exact search: what it expects, what it costs, and what it cannot spoil."""

from __future__ import annotations

import pytest
import torch

from assay.harness.operations.inversion import token_by_token
from assay.harness.operations.inversion.candidates import Prefixes, branches
from assay.harness.operations.inversion.target import Target
from assay.harness.operations.inversion.token_by_token import TYPICAL, Ranking, exact, ranking
from assay.harness.tests.support.toys import fresh, prompt, toy


def test_where_states_are_linear_in_embeddings_they_are_expected_exactly():
    """At depth 0 a state is an embedding and a position's row; later on it is not."""
    subject, everyone = toy("gpt2"), torch.arange(101)
    for place in (0, TYPICAL):
        ids = torch.cat([torch.zeros(101, place, dtype=torch.long), everyone[:, None]], dim=1)
        for depth, linear in ((0, True), (1, False)):
            made = ranking(subject, Target(depth)).expected(everyone, place)
            states = Target(depth).output(subject, ids)[:, -1]
            assert torch.allclose(made, states, atol=1e-4) == linear


def test_after_a_prompt_other_states_are_expected_than_without():
    first, later = torch.eye(3), 2 * torch.eye(3)
    ranked, tokens = Ranking(first, later, 0), torch.tensor([[2, 0]])
    assert torch.equal(ranked.expected(tokens, 0), first[tokens])
    assert torch.equal(ranked.expected(tokens, 5), later[tokens])


@pytest.mark.parametrize("place", [0, 4])
def test_tokens_are_ranked_by_their_distance(place):
    generator = torch.Generator().manual_seed(0)
    first, later, goal, shift = (torch.randn(6, 4, generator=generator) for _ in range(4))
    ranked = Ranking(first, later, 0)
    for moved in (None, shift):
        table = (later if place else first)[None] + (0 if moved is None else moved[:, None])
        off = (goal[:, None] - table).square().sum(-1)
        misses = ranked.misses(goal, place, moved)
        assert torch.equal(misses.argsort(1), off.argsort(1))
        assert torch.allclose(misses - misses[:, :1], off - off[:, :1], atol=1e-5)


def test_what_cannot_be_expected_comes_last_but_before_what_was_tried():
    broken = Ranking(torch.tensor([[0.0], [torch.nan], [3.0]]), torch.zeros(3, 1), 0)
    misses = broken.misses(torch.tensor([[1.0]]), 0, None)
    assert misses.argsort(1).tolist() == [[0, 2, 1]]
    assert bool((misses < torch.inf).all())


@pytest.mark.parametrize("value", [torch.nan, 0.0])
def test_a_ranking_that_knows_nothing_costs_tries_and_no_answers(monkeypatch, value):
    subject, target = toy("gpt2"), Target(2)
    ids = prompt(subject, 4)
    nothing = Ranking(torch.full((101, 32), value), torch.full((101, 32), value), 0)
    monkeypatch.setattr(token_by_token, "ranking", lambda subject, target: nothing)
    result = exact(subject, target, target.output(subject, ids))
    assert torch.equal(result.ids, ids)
    assert bool(result.verified.all())


def test_the_set_up_is_counted_and_made_once():
    subject, target, counts = fresh("gpt2"), Target(1), []
    states = Prefixes.states

    def counted(prefixes: Prefixes, tokens: torch.Tensor, rows: None = None):
        counts.append(tokens.numel())
        return states(prefixes, tokens, rows)

    assert branches(subject)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Prefixes, "states", counted)
        made = ranking(subject, target)
        assert ranking(subject, target) is made
    assert sum(counts) == made.set_up == 2 * subject.vocabulary
    assert ranking(subject, Target(2)) is not made


def test_the_ranking_saves_tries_on_a_trained_model():
    subject, target = toy("reference:small"), Target(2)
    ids = prompt(subject, 6)
    result = exact(subject, target, target.output(subject, ids))
    assert torch.equal(result.ids, ids)
    assert float(result.tried.double().mean()) < 0.01 * subject.vocabulary
