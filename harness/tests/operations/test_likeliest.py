"""The rows that score highest: against float64 throughout, where rounding could tell otherwise."""

from __future__ import annotations

import pytest
import torch

from assay.harness.operations import likeliest
from assay.harness.operations.likeliest import Scorer, leaders
from assay.harness.tests.support.randoms import normal
from assay.harness.tests.support.scores import D, V, slow


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("nearest", [False, True])
@pytest.mark.parametrize("k", [1, 3])
def test_the_likeliest_rows_are_those_of_float64(dtype, nearest, k):
    table, points = normal(V, D).to(dtype), normal(40, D, seed=1)
    assert Scorer(table, nearest).top(points, k).equal(slow(table, points, k, nearest))
    assert not slow(table, points, k, nearest).equal(slow(table, points, k, not nearest))


@pytest.mark.parametrize("k", [1, 4, 5])
def test_tables_of_few_rows_are_ranked_to_the_last(k):
    table, points = normal(5, D).float(), normal(20, D, seed=1)
    assert Scorer(table).top(points, k).equal(slow(table, points, k, nearest=False))


def test_many_points_and_rows_go_through_in_parts(monkeypatch):
    table, points = normal(V, D).float(), normal(200, D, seed=1)
    whole = Scorer(table).top(points, 2)
    monkeypatch.setattr(likeliest, "ROWS_AT_ONCE", 7)
    monkeypatch.setattr(likeliest, "SCORES_AT_ONCE", 20 * V)
    parts = likeliest.some_at_once(table, points)
    assert [len(part) for part in parts] == [20] * 10
    assert torch.cat([Scorer(table).top(part, 2) for part in parts]).equal(whole)


@pytest.mark.parametrize("nearest", [False, True])
@pytest.mark.parametrize("times", [2, 30])
def test_of_equal_rows_the_first_comes_first(nearest, times):
    table = normal(V, D)
    copies = torch.randperm(V, generator=torch.Generator().manual_seed(0))[:times]
    table[copies] = 3 * normal(D, seed=5)
    for dtype in (torch.float32, torch.float64):
        indices = Scorer(table.to(dtype), nearest).top(table[copies[:1]], 2)
        assert indices.tolist() == [copies.sort().values[:2].tolist()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_row_that_differs_in_the_last_place_is_not_the_nearest(dtype):
    table = normal(V, D).to(dtype)
    close = torch.nextafter(table[20], torch.full_like(table[20], torch.inf))
    table[[7, 31]] = torch.where(torch.arange(D) == 3, close, table[20])
    points = table[[7, 20, 31]].double()
    assert Scorer(table, nearest=True).top(points, 2)[:, 0].tolist() == [7, 20, 7]
    assert Scorer(table, nearest=True)._of_all(points, 1)[:, 0].tolist() == [7, 20, 7]


def test_equal_rows_are_ranked_together_however_their_scores_are_rounded():
    """The rows 1, 3 and 6 are equal; any order of summation may be a library's."""
    table, points = normal(8, D).float(), normal(50, D, seed=1)
    table[[3, 6]] = table[1].clone()
    indices = Scorer(table).top(points, 8)
    at = (indices[..., None] == torch.tensor([1, 3, 6])).int().argmax(1)
    assert (at.diff(dim=1) == 1).all()
    order = torch.randperm(D, generator=torch.Generator().manual_seed(0))
    assert Scorer(table[:, order]).top(points[:, order], 8).equal(indices)


def test_points_that_are_not_finite_do_not_disturb_others():
    table, points = normal(V, D).float(), normal(6, D, seed=1)
    expected = slow(table, points, 2, nearest=True)
    points[1, 3], points[4, 0] = torch.nan, torch.inf
    indices = Scorer(table, nearest=True).top(points, 2)
    assert indices[[1, 4]].tolist() == [[0, 1], [0, 1]]
    kept = [0, 2, 3, 5]
    assert indices[kept].equal(expected[kept])


def test_points_too_large_for_float32_are_scored_in_float64():
    table, points = normal(V, D).float(), 1e60 * normal(6, D, seed=1)
    assert Scorer(table).top(points, 1).equal(slow(table, points, 1, nearest=False))
    assert not bool(Scorer(table).scores(points).isfinite().all())


def test_only_leads_larger_than_the_room_are_clear():
    scores = torch.tensor([[3.0, 2.0, 1.5], [3.0, 2.9, 1.0], [torch.nan, 1.0, 0.0]])
    room = torch.full((3,), 0.4)
    assert leaders(scores, 1, room)[1].tolist() == [True, False, False]
    assert leaders(scores, 2, room)[1].tolist() == [True, False, False]
    assert leaders(scores, 2, 1.5 * room)[1].tolist() == [False, False, False]
