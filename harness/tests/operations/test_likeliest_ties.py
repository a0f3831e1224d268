"""Rows that are nearly tied: ordered as in float64, however many, in parts, and at what cost."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from assay.harness.operations import likeliest
from assay.harness.operations.likeliest import SPARE, Scorer, leaders, narrowing, rounding
from assay.harness.tests.support.randoms import normal
from assay.harness.tests.support.scores import D, V, slow

FEW, MANY = 5, 3 * SPARE
"""Rows that are tied: all of them among those looked at again, or more than are."""


def tied(seed: int, rows: int, nearest: bool, points: int = 4) -> tuple[Tensor, Tensor]:
    """A float32 table, the first ``rows`` of it far ahead and nearly tied at some points."""
    table, point = normal(V, D, seed=seed).float(), 3 * normal(1, D, seed=seed + 1000)
    table[:rows] = (point + 0.1 * normal(rows, D, seed=seed + 2000)).float()
    wide = table[:rows].double()
    differences = wide[1:] - wide[:1]
    sizes = 0.5 * wide.square().sum(1) if nearest else torch.zeros(rows)
    levels = 1e-9 * normal(points, rows - 1, seed=seed + 3000)
    # Moved along the directions in which they differ, points have them level up to the gap.
    wrong = point @ differences.T - (sizes[1:] - sizes[:1]) - levels
    return table, point - wrong @ torch.linalg.pinv(differences).T


def shuffled(table: Tensor, seed: int) -> Tensor:
    return table[torch.randperm(len(table), generator=torch.Generator().manual_seed(seed))]


@pytest.fixture
def scored_throughout(monkeypatch):
    """The sizes of groups of points for which all rows were scored in float64."""
    sizes, plain = [], Scorer._of_all

    def of_all(self, points, k):
        sizes.append(len(points))
        return plain(self, points, k)

    monkeypatch.setattr(Scorer, "_of_all", of_all)
    return sizes


@pytest.mark.parametrize("nearest", [False, True])
@pytest.mark.parametrize("rows", [2, FEW, MANY])
@pytest.mark.parametrize("k", [1, 3])
def test_near_ties_are_ordered_as_in_float64(rows, nearest, k):
    mismatches = 0
    for seed in range(8):
        table, points = tied(seed, rows, nearest)
        table = shuffled(table, seed)
        expected = slow(table, points, k, nearest)
        assert Scorer(table, nearest).top(points, k).equal(expected)
        rounded = Scorer(table, nearest).scores(points).topk(k).indices
        mismatches += not rounded.equal(expected)
    assert mismatches  # rounded scores alone would not do


@pytest.mark.parametrize("nearest", [False, True])
def test_near_ties_are_ordered_in_parts_too(monkeypatch, nearest):
    monkeypatch.setattr(likeliest, "ROWS_AT_ONCE", 7)
    monkeypatch.setattr(likeliest, "AGAIN_AT_ONCE", 3)
    table, points = tied(0, MANY, nearest, points=8)
    table = shuffled(table, 0)
    assert Scorer(table, nearest).top(points, 2).equal(slow(table, points, 2, nearest))


@pytest.mark.parametrize("nearest", [False, True])
def test_points_with_ties_and_without_are_told_apart(nearest):
    table, points = tied(0, MANY, nearest)
    mixed = torch.cat([normal(2, D, seed=9), points[:2], normal(1, D, seed=10), points[2:]])
    assert Scorer(table, nearest).top(mixed, 2).equal(slow(table, mixed, 2, nearest))


@pytest.mark.parametrize(("rows", "groups"), [(2, []), (FEW, []), (MANY, [16, 4])])
def test_all_rows_are_scored_again_only_where_a_few_do_not_hold_the_answer(
    scored_throughout, rows, groups
):
    table, points = tied(0, rows, nearest=False, points=20)
    Scorer(table).top(points, 1)
    assert scored_throughout == groups


def test_a_table_of_no_more_rows_than_are_looked_at_again_is_scored_once(scored_throughout):
    table, points = tied(0, FEW, nearest=False)
    table = table[: SPARE + 1]
    expected = slow(table, points, 1, nearest=False)
    assert Scorer(table).top(points, 1).equal(expected)
    assert Scorer(table[:FEW]).top(points, 2).equal(slow(table[:FEW], points, 2, nearest=False))
    assert scored_throughout == []


def test_points_that_are_clear_are_not_looked_at_again(monkeypatch):
    looked_at, plain = [], Scorer._settled

    def settled(self, points, k, scores):
        looked_at.append(len(points))
        return plain(self, points, k, scores)

    monkeypatch.setattr(Scorer, "_settled", settled)
    table, points = tied(0, FEW, nearest=True)
    rows = table[FEW:].double()
    assert Scorer(table, nearest=True).top(rows, 1)[:, 0].equal(torch.arange(FEW, V))
    assert looked_at == []
    Scorer(table, nearest=True).top(torch.cat([rows[:3], points]), 1)
    assert looked_at == [len(points)]


def test_of_all_rows_only_those_that_may_lead_are_ordered_one_by_one(monkeypatch):
    ordered, plain = [], Scorer._in_float64

    def in_float64(self, points, ids, k):
        ordered.append(ids.shape[1])
        return plain(self, points, ids, k)

    table, points = tied(0, MANY, nearest=False)
    monkeypatch.setattr(Scorer, "_in_float64", in_float64)
    Scorer(table)._of_all(points, 2)
    assert len(ordered) == len(points)
    assert max(ordered) == 2


@pytest.mark.parametrize(("share", "rows"), [(0.98, 2), (1.02, 1)])
def test_rows_nearer_than_rounding_tells_are_ordered_one_by_one(monkeypatch, share, rows):
    """Each product in float64 may be off by γ ‖w‖ ‖p‖, and ‖w‖² with it, of either row."""
    ordered, plain = [], Scorer._in_float64

    def in_float64(self, points, ids, k):
        ordered.append(ids.shape[1])
        return plain(self, points, ids, k)

    monkeypatch.setattr(Scorer, "_in_float64", in_float64)
    table, points = torch.zeros(5, D).double(), torch.zeros(2, D).double()
    longest, size = 2.0, 3.0
    room = 2 * (D + 4) * torch.finfo(torch.float64).eps * longest * (size + longest)
    table[0, 0], table[1, 0] = longest, longest - share * room / size
    points[0, 0], points[1, 0] = size, 100 * size
    assert Scorer(table)._of_all(points, 1).tolist() == [[0], [0]]
    assert ordered[0] == rows


@pytest.mark.parametrize("nearest", [False, True])
def test_everything_is_made_where_the_table_is(nearest):
    table, points = tied(0, MANY, nearest)
    usual = Scorer(table, nearest).top(points, 2)
    with torch.device("meta"):  # where what is made without a device would be, and be nothing
        assert Scorer(table, nearest).top(points, 2).equal(usual)


# Bounds.


def test_a_lead_that_is_just_the_room_is_not_clear():
    scores = torch.tensor([[3.0, 2.5, 0.0]])
    assert not leaders(scores, 1, torch.tensor([0.5]))[1]
    assert leaders(scores, 1, torch.tensor([0.25]))[1]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_product_is_off_by_no_more_than_the_textbook_says(dtype):
    """γ of d additions in units of half an epsilon (Higham 2002, section 3.1)."""
    table = normal(V, D).to(dtype)
    unit = torch.finfo(likeliest.working_dtype(table)).eps / 2
    textbook = D * unit / (1 - D * unit)
    assert textbook < rounding(table) < 1.5 * textbook


@pytest.mark.parametrize(("precision", "bits"), [("high", 10), ("medium", 7)])
def test_narrower_products_are_off_by_as_much_more(monkeypatch, precision, bits):
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: precision)
    table = normal(V, D)
    assert narrowing(table.float()) == 3 * 2.0**-bits
    assert rounding(table.float()) > 3 * 2.0**-bits
    assert narrowing(table) == 0
    monkeypatch.undo()
    assert narrowing(table.float()) == 0


@pytest.mark.parametrize("nearest", [False, True])
def test_no_score_is_moved_by_more_than_is_said(nearest):
    table, points = (
        normal(V, D).float(),
        normal(40, D, seed=1) * torch.logspace(-3, 3, 40)[:, None],
    )
    scorer, w = Scorer(table, nearest), table.double()
    exact = points @ w.T - (0.5 * w.square().sum(1) if nearest else 0)
    off = (scorer.scores(points).double() - exact).abs().amax(1)
    moved = scorer.moved(points)
    assert (off < moved).all()
    sizes, longest = points.norm(dim=1), float(w.norm(dim=1).max())
    expected = rounding(table) * longest * (sizes + (2 * longest if nearest else 0))
    assert torch.allclose(moved, expected, rtol=1e-6)
    other = rounding(table) * 7 * (sizes + (14 if nearest else 0))
    assert torch.allclose(scorer.moved(points, 7.0), other)
