"""Rivals tried at all places at once: as a search of each place finds them, in few passes."""

from __future__ import annotations

import itertools

import pytest
import torch

from assay.harness.inversion import Target, invert, whole_prompts
from assay.harness.inversion.candidates import Prefixes
from assay.harness.inversion.linear_map import FEW, LinearMap
from assay.harness.inversion.set_up import linear_map
from assay.harness.inversion.token_by_token import exhaustive, ranked
from assay.harness.inversion.whole_prompts import exact
from assay.harness.models.subject import Subject
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


def test_equal_tokens_are_those_that_an_exhaustive_search_lists(searched):
    """Forty are more than are tried at first."""
    subject, target = with_copies(), Target(2)
    ids = torch.tensor([[4, 7, 9, 31, 2], [3, 5, 8, 6, 1], [9, 30, 5, 40, 60]])
    goal = target.output(subject, ids)
    result = exact(subject, target, goal)
    assert result.others == exhaustive(subject, target, goal).others
    assert bool(result.verified.all())
    assert not searched


def test_a_place_whose_branches_are_wrong_is_searched(searched, monkeypatch):
    subject, target = with_copies(), Target(2)
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


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_many_near_tokens_cost_little_more_than_a_search_of_each_place(dtype):
    """Where one nearer rival follows another, what comes after them is not verified each time."""
    subject = adopted("llama", getattr(torch, dtype))
    rows, scale = subject.embedding_table, 1e-6 if dtype == "float32" else 8e-3
    with torch.no_grad():
        noise = torch.randn(11, rows.shape[1], generator=torch.Generator().manual_seed(0))
        rows[1:12] = rows[0] + scale * float(rows.std()) * noise.to(rows)
    ids = torch.randint(12, (2, 60), generator=torch.Generator().manual_seed(1))
    target = Target(1)
    goal = target.output(subject, ids)
    result, slow = (each(subject, target, goal) for each in (exact, ranked))
    assert bool(result.verified.all())
    assert int(result.passes.max()) <= 1.5 * int(slow.passes.max())
    assert float(result.distances.mean()) <= 1.5 * float(slow.distances.mean())


def test_what_lies_beyond_a_prompt_has_no_rivals():
    """Though token 0, which stands there, has equals."""
    subject, target = fresh("gpt2"), Target(2)
    with torch.no_grad():
        subject.embedding_table[30] = subject.embedding_table[0].clone()
    ids = torch.tensor([[4, 7, 9, 31], [5, 6, 1, 1]])
    goal = target.output(subject, ids)
    goal[1, 2:] = 1e3
    result = invert(subject, target, goal, lengths=[4, 2])
    assert bool(result.verified.all())
    assert result.tried[1, 2:].tolist() == [0, 0]


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize("within", [1e-3, 1.0, 4.0])
def test_a_place_is_near_another_token_where_a_look_at_all_of_them_says_so(within, broken):
    """Or where more tokens are near in a few directions than are looked at; whatever is broken."""
    subject = fresh("reference:small")
    with torch.no_grad():
        subject.embedding_table[30] = subject.embedding_table[7].clone()
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
