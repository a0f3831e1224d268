"""Tokens that a state cannot tell apart: all are listed, in few passes, and none is invented."""

from __future__ import annotations

import itertools

import pytest
import torch

from assay.harness.inversion import (
    METHODS,
    Prefixes,
    Target,
    exact,
    invert,
    linear_map,
    token_by_token,
    whole_prompts,
)
from assay.harness.inversion.linear import FEW, LinearMap
from assay.harness.inversion.token_by_token import exhaustive, ranked
from assay.harness.models.reference.tolerances import distance
from assay.harness.models.subject import Subject
from assay.harness.tests.support.descents import inversion_by
from assay.harness.tests.support.toys import adopted, fresh, prompt, toy


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The places that are searched one by one."""
    places: list[int] = []
    usual = whole_prompts.search_place

    def noting(found, prefixes, *rest):
        places.append(len(prefixes))
        usual(found, prefixes, *rest)

    monkeypatch.setattr(whole_prompts, "search_place", noting)
    return places


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_16_bits_take_few_passes(dtype):
    """Though many tokens are near: where one is nearer, its place is searched, and no others."""
    subject = toy("reference:small", dtype)
    target = Target(subject.layers)
    ids = prompt(subject, 20, batch=4)
    result, slow = (each(subject, target, target.output(subject, ids)) for each in (exact, ranked))
    assert torch.equal(result.ids, ids)
    assert bool(result.verified.all())
    assert torch.equal(slow.ids, ids)
    assert int(slow.passes.min()) >= 2 * 20
    assert int(result.passes.max()) < 20


def with_copies() -> Subject:
    subject = fresh("reference:small")
    with torch.no_grad():
        subject.embedding_table[[30, 31, 40]] = subject.embedding_table[7].clone()
        subject.embedding_table[50:90] = subject.embedding_table[8].clone()
    return subject


def test_a_place_whose_branches_are_wrong_is_searched(searched, monkeypatch):
    subject, target = with_copies(), Target(2)
    with torch.no_grad():  # nearly equal, as equal ones need no branch
        subject.embedding_table[[30, 31, 40]] *= 1 + 2e-6
    ids = torch.tensor([[4, 7, 9, 31, 2]])
    goal = target.output(subject, ids)
    usual = Prefixes.states_at

    def off(*arguments):
        for first, states in usual(*arguments):
            yield first, states * 1.01

    monkeypatch.setattr(Prefixes, "states_at", off)
    result = exact(subject, target, goal)
    assert [*result.others] == [(0, 1), (0, 3)]
    assert searched == [1, 3]


def test_a_nearer_rival_is_found_and_what_follows_is_verified_again(searched, monkeypatch):
    """The first guess of a place is wrong, and its state within the tolerance."""
    subject, target = fresh("reference:small"), Target(2)
    with torch.no_grad():
        subject.embedding_table[30] = subject.embedding_table[7] * (1 + 2e-6)
    ids, wrong = torch.tensor([[4, 9, 7, 12, 2, 5]]), torch.tensor([[4, 9, 30, 12, 2, 5]])
    goal = target.output(subject, ids)
    monkeypatch.setattr(LinearMap, "likeliest", lambda known, goal: wrong)
    result = exact(subject, target, goal)
    assert torch.equal(result.ids, ids)
    assert result.others == {(0, 2): [7, 30]}
    assert searched == [2]
    monkeypatch.setattr(whole_prompts, "undecided", lambda *_: torch.zeros_like(ids).bool())
    blind = exact(subject, target, goal)
    assert torch.equal(blind.ids, wrong)
    assert bool(blind.verified.all())
    assert int(blind.passes[0]) < int(result.passes[0])


def test_many_near_tokens_cost_little_more_than_a_search_of_each_place():
    """Where one nearer rival follows another, what comes after them is not verified each time."""
    subject = adopted("llama", torch.bfloat16)
    rows = subject.embedding_table
    with torch.no_grad():
        noise = torch.randn(11, rows.shape[1], generator=torch.Generator().manual_seed(0))
        rows[1:12] = rows[0] + 8e-3 * float(rows.std()) * noise.to(rows)
    ids = torch.randint(12, (2, 60), generator=torch.Generator().manual_seed(1))
    target = Target(1)
    goal = target.output(subject, ids)
    result, slow = (each(subject, target, goal) for each in (exact, ranked))
    assert bool(result.verified.all())
    assert int(result.passes.max()) <= 1.5 * int(slow.passes.max())
    assert float(result.distances.mean()) <= 1.5 * float(slow.distances.mean())


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize("within", [1e-3, 1.0, 4.0])
def test_a_place_is_near_another_token_where_a_look_at_all_of_them_says_so(within, broken):
    """Or where more tokens are near in a few directions than are looked at; whatever is broken."""
    subject = fresh("reference:small")
    with torch.no_grad():
        subject.embedding_table[30] = subject.embedding_table[7] * (1 + 2e-6)
        if broken:
            subject.embedding_table[5] = torch.nan
    known = linear_map(subject, Target(2))
    ids = torch.tensor([[30, 12, 7, 40], [8, 9, 7, 7]])
    near = known.near(ids, torch.full(ids.shape, within, dtype=torch.float64))
    every = torch.arange(subject.vocabulary)
    for row, place in itertools.product(range(2), range(4)):
        own = ids[row, place]
        off = torch.linalg.vector_norm(known.part(every, place) - known.part(own, place), dim=1)
        axes = known.axes[min(place, 1)]
        beside = ((axes - axes[own]).abs() <= within).all(1).sum() - 1
        others = off[every != own] <= within
        assert bool(near[row, place]) == bool(others.any() or beside > FEW)
    assert near[0, 0]
    assert near[0, 2]


# Prompts that a state cannot tell apart.


SEARCHES = pytest.mark.parametrize("method", [exact, ranked, exhaustive])
OVER_ALL = pytest.mark.parametrize("method", METHODS)


def with_equals(*copies: int, of: int = 7) -> Subject:
    """A model in which the tokens ``copies`` are embedded as ``of`` is."""
    subject = fresh("gpt2")
    with torch.no_grad():
        subject.embedding_table[list(copies)] = subject.embedding_table[of].clone()
    return subject


# Tokens of equal rows.


@SEARCHES
@pytest.mark.parametrize("copies", [[30], [1, 30, 100], list(range(20, 60))], ids=len)
def test_tokens_of_equal_rows_are_all_told(method, copies):
    """The most of them are more than a round of `exact` tries."""
    subject, target, equal = with_equals(*copies), Target(2), sorted([7, *copies])
    ids = torch.tensor([[4, 5, 7, 9, 2], [3, copies[-1], 8, 6, 7]])
    result = method(subject, target, target.output(subject, ids))
    assert result.others == dict.fromkeys([(0, 2), (1, 1), (1, 4)], equal)
    assert bool(result.verified.all())
    one, other = (
        each.where(~torch.isin(each, torch.tensor(equal)), 7) for each in (ids, result.ids)
    )
    assert torch.equal(one, other)


@SEARCHES
def test_a_token_that_breaks_the_model_hides_no_other(method):
    subject, target = fresh("gpt2"), Target(2)
    ids = prompt(subject, 5)
    wanted = target.output(subject, ids)
    broken = next(t for t in range(subject.vocabulary) if not (ids == t).any())
    with torch.no_grad():
        subject.embedding_table[broken] = torch.nan
    result = method(subject, target, wanted)
    assert torch.equal(result.ids, ids)
    assert bool(result.verified.all())


# Prompts of any length.

REPEATED = torch.tensor([[9, 9, 9], [9, 9, 8], [5, 5, 5]])


@pytest.mark.parametrize(("model_type", "rows"), [("llama", [0, 2]), ("gpt2", []), ("mamba", [])])
@pytest.mark.parametrize("method", ["exact", "token-by-token", "exhaustive"])
def test_repetitions_of_a_token_are_of_any_length_without_absolute_positions(
    method, model_type, rows
):
    subject, target = toy(model_type), Target(2)
    result = inversion_by(method, subject, target, REPEATED)
    assert torch.equal(result.ids, REPEATED)
    assert result.any_length == rows
    ends = [target.output(subject, torch.full((1, n), 9))[:, -1:] for n in (3, 17)]
    assert bool(distance(*ends) <= token_by_token.accepted(subject)) == bool(rows)


def test_what_is_not_verified_is_not_of_any_length():
    subject, target = toy("llama"), Target(2)
    wanted = target.output(subject, REPEATED)
    wanted[0, 1] += 0.01
    assert invert(subject, target, wanted).any_length == [2]
