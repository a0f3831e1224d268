"""The linear map of an exact search: what it expects, what it costs, and what it cannot spoil."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from assay.harness.inversion import set_up, token_by_token, whole_prompts
from assay.harness.inversion.linear_map import LinearMap, Slope, factor, ridge, spread
from assay.harness.inversion.set_up import TYPICAL, linear_map
from assay.harness.inversion.target import Target
from assay.harness.inversion.token_by_token import ranked
from assay.harness.inversion.whole_prompts import exact
from assay.harness.models.subject import Subject
from assay.harness.tests.support.toys import fresh, prompt, toy

SEARCHES = pytest.mark.parametrize(
    ("method", "module"), [(exact, whole_prompts), (ranked, token_by_token)]
)


def random_map(metric: torch.Tensor | None = None) -> LinearMap:
    """A map with random numbers: 6 tokens, 3 dimensions, 4 features, 5 places."""
    draw = torch.Generator().manual_seed(0)
    table, centre = torch.randn(6, 3, generator=draw), torch.randn(3, generator=draw)
    lower = torch.eye(4).double() if metric is None else metric
    slopes = [
        Slope.of(table, centre, torch.randn(3, 4, generator=draw).double(), lower)
        for _ in range(3)
    ]
    axes = tuple(spread(table, centre.double(), each.linear.double()) for each in slopes[::2])
    return LinearMap(table, centre, torch.randn(5, 4, generator=draw), *slopes, axes, 0)


def test_where_states_are_linear_in_embeddings_they_are_expected_exactly():
    """At depth 0 a state is an embedding and a position's row; later on it is not."""
    subject, everyone = toy("gpt2"), torch.arange(101)
    for place in (0, TYPICAL):
        ids = torch.cat([torch.zeros(101, place, dtype=torch.long), everyone[:, None]], dim=1)
        for depth, linear in ((0, True), (1, False)):
            made = linear_map(subject, Target(depth)).expected(everyone, place)
            states = Target(depth).output(subject, ids)[:, -1]
            assert torch.allclose(made, states, atol=1e-4) == linear


@pytest.mark.parametrize("place", [0, 4])
def test_tokens_are_ranked_by_their_distance_in_the_metric(place):
    draw = torch.Generator().manual_seed(1)
    lower = torch.randn(4, 4, generator=draw).double().tril()
    lower.diagonal().abs_().add_(0.5)
    known, tokens = random_map(lower), torch.arange(6)
    goal, shift = torch.randn(2, 2, 4, generator=draw)
    for moved in (None, shift):
        slope = known.guess if place else known.first
        expected = known.means[place] + (known.table[tokens] - known.centre) @ slope.linear
        apart = goal[:, None] - expected[None] - (0 if moved is None else moved[:, None])
        white = torch.linalg.solve_triangular(lower, apart.double().mT, upper=False)
        off = white.square().sum(1) / 2
        misses = known.misses(goal, place, moved)
        assert torch.allclose((misses - misses[:, :1]).double(), off - off[:, :1], atol=1e-4)


def test_prompts_are_guessed_as_their_places_are_ranked():
    known, draw = random_map(), torch.Generator().manual_seed(2)
    goal, states = torch.randn(2, 3, 7, 4, generator=draw)
    ids = torch.randint(6, (3, 7), generator=draw)
    guess, again = known.likeliest(goal), known.likelier(ids, states, goal)
    for place in range(7):
        shift = states[:, place] - known.expected(ids[:, place], place)
        alone = [known.misses(goal[:, place], place, each).argmin(1) for each in (None, shift)]
        assert torch.equal(guess[:, place], alone[0])
        assert torch.equal(again[:, place], alone[1])


def test_near_tokens_are_those_within_the_distance():
    known = random_map()
    ids = torch.tensor([[0, 1, 2], [3, 4, 5]])
    for row, place in torch.ones_like(ids).nonzero().tolist():
        states = known.part(torch.arange(6), place)
        off = (states - states[ids[row, place]]).norm(dim=1).double()
        nearest = float(off[off > 0].min())
        for within, near in ((0.95 * nearest, False), (1.05 * nearest, True)):
            found = known.near(ids, torch.full(ids.shape, within).double())
            assert bool(found[row, place]) == near


def test_where_many_tokens_are_near_no_distances_are_computed(monkeypatch):
    known, ids = random_map(), torch.tensor([[0, 1, 2]])
    far, none = torch.full(ids.shape, 100.0).double(), torch.zeros(ids.shape).double()
    assert bool(known.near(ids, far).all())
    assert not bool(known.near(ids, none).any())
    monkeypatch.setattr("assay.harness.inversion.linear_map.FEW", 0)
    monkeypatch.setattr(LinearMap, "part", lambda *which: torch.zeros(0, 4))
    assert bool(known.near(ids, far).all())


def test_what_cannot_be_expected_comes_last_but_before_what_was_tried():
    known = random_map()
    halves = known.guess.halves.clone()
    halves[3] = torch.nan
    broken = replace(known, guess=replace(known.guess, halves=halves))
    misses = broken.misses(torch.ones(1, 4), 2)
    assert misses.argmax(1).tolist() == [3]
    assert bool((misses < torch.inf).all())


# How it is estimated.


def test_a_ridge_regression_finds_a_slope_and_shrinks_noise():
    draw = torch.Generator().manual_seed(0)
    slope, inputs = torch.randn(20, 5, generator=draw), torch.randn(40, 20, generator=draw)
    exactly, noise = inputs @ slope, torch.randn(40, 5, generator=draw)
    assert torch.allclose(ridge(inputs, exactly).float(), slope, atol=1e-4)
    kept = ridge(inputs, noise).norm()
    plain = torch.linalg.lstsq(inputs, noise).solution.norm()
    assert kept < 0.8 * plain


def test_a_factor_is_that_of_the_covariance_and_few_samples_are_shrunk():
    draw = torch.Generator().manual_seed(0)
    mixing = torch.randn(6, 6, generator=draw).double()
    sample = torch.randn(20000, 6, generator=draw).double() @ mixing
    lower = factor(sample, torch.tensor(1.0))
    assert torch.allclose(lower @ lower.T, mixing.T @ mixing, rtol=0.1, atol=0.3)
    few = factor(sample[:3], torch.tensor(1.0))
    assert float(torch.linalg.cond(few)) < 1e3  # and without shrinking infinite
    assert bool(factor(torch.zeros(3, 6), torch.tensor(1.0)).isfinite().all())


def test_the_set_up_is_counted_and_made_once(monkeypatch):
    subject, target, counts = fresh("gpt2"), Target(1), []
    output = Target.output

    def counted(target: Target, subject: Subject, ids: torch.Tensor, **inputs: torch.Tensor):
        made = output(target, subject, ids, **inputs)
        counts.append(ids.numel())
        return made

    linear_map(subject, Target(2))
    monkeypatch.setattr(Target, "output", counted)
    made = linear_map(subject, target)
    assert sum(counts) == made.states + TYPICAL  # and the prompt before the sample
    assert linear_map(subject, target) is made
    assert linear_map(subject, Target(2)) is not made


def test_longer_prompts_extend_the_means_and_keep_the_rest(monkeypatch):
    subject, target = fresh("gpt2"), Target(1)
    monkeypatch.setattr(set_up, "LENGTH", 8)
    short, long = linear_map(subject, target, 5), linear_map(subject, target, 20)
    assert (len(short), len(long)) == (8, 32)
    assert torch.equal(long.means[:8], short.means)
    assert long.guess is short.guess
    assert long.states > short.states
    assert linear_map(subject, target, 10) is long
    whole = linear_map(subject, target, 64)
    assert len(whole) == subject.context == 64


# What it cannot spoil.


@SEARCHES
@pytest.mark.parametrize("value", [torch.nan, 0.0])
def test_a_map_that_knows_nothing_costs_tries_and_no_answers(monkeypatch, method, module, value):
    subject, target = toy("gpt2"), Target(2)
    ids, known = prompt(subject, 4), linear_map(subject, target)

    def spoilt(slope: Slope) -> Slope:
        return Slope(*(torch.full_like(each, value) for each in vars(slope).values()))

    nothing = replace(
        known,
        means=torch.zeros_like(known.means),
        first=spoilt(known.first),
        guess=spoilt(known.guess),
        again=spoilt(known.again),
    )
    monkeypatch.setattr(module, "linear_map", lambda *which: nothing)
    result = method(subject, target, target.output(subject, ids))
    assert torch.equal(result.ids, ids)
    assert bool(result.verified.all())


@SEARCHES
def test_the_map_saves_tries_on_a_trained_model(method, module):
    subject = toy("reference:small")
    target = Target(2)
    ids = prompt(subject, 6)
    result = method(subject, target, target.output(subject, ids))
    assert torch.equal(result.ids, ids)
    assert float(result.tried.double().mean()) < 0.01 * subject.vocabulary
