"""Decoding embeddings: the fast pseudo-inverse against torch's, and where nearest rows win."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from assay.harness.inversion import decoding
from assay.harness.inversion.decoding import PseudoInverse, nearest, nearest_few
from assay.harness.inversion.own_rows import recovery
from assay.harness.operations.equal_rows import has_duplicate
from assay.harness.operations.factors import gram
from assay.harness.operations.likeliest import Scorer, leaders
from assay.harness.tests.support.matrices import (
    COLUMNS,
    ROWS,
    deficient,
    of_condition,
    table,
    wide,
)


def errors(w: Tensor) -> tuple[float, float]:
    """How far `logits` and `apply` are from torch's pseudo-inverse, relative to it."""
    fast, slow = PseudoInverse.of(w), torch.linalg.pinv(w, rtol=max(w.shape) * 2.3e-16)
    points, weights = table(7, 5, w.shape[1]), table(8, 5, w.shape[0])
    pairs = [(fast.logits(points), points @ slow), (fast.apply(weights), weights @ slow.T)]
    return tuple(float((mine - theirs).norm() / theirs.norm()) for mine, theirs in pairs)


@pytest.mark.parametrize("condition", [1e1, 1e3, 1e6, 1e9])
def test_every_method_is_torch_s_pseudo_inverse(condition):
    w = of_condition(condition)
    assert max(errors(w)) <= 10 * PseudoInverse.of(w).rounding
    assert PseudoInverse.of(w).rounding < 1e-3


@pytest.mark.parametrize("seed", range(12))
def test_a_missing_rank_is_noticed_and_decoded_around(seed):
    fast = PseudoInverse.of(deficient(seed))
    assert fast.method == "svd"
    assert fast.rank == (6 if seed % 3 == 2 else COLUMNS - 1)
    assert max(errors(deficient(seed))) < 1e-10


def likely(w: Tensor, points: Tensor, k: int = 1) -> Tensor:
    """The slow way: torch's pseudo-inverse in float64, all logits sorted."""
    inverse = torch.linalg.pinv(w.double(), rtol=max(w.shape) * 2.3e-16)
    return (points.double() @ inverse).sort(1, descending=True).indices[:, :k]


def is_exact(inverse: PseudoInverse) -> bool:
    """Whether the table was factored in float64 by now."""
    return "exact" in vars(inverse)


TABLES = [(2.0, 0.0), (30.0, 0.0), (30.0, 0.3), (90.0, 0.0)]


@pytest.mark.parametrize(("condition", "offset"), TABLES)
@pytest.mark.parametrize("k", [1, 4])
def test_tokens_of_a_rough_factorisation_are_the_exact_ones(condition, offset, k):
    w = wide(condition, offset)
    fast = PseudoInverse.of(w)
    for points in (w[:300], w[:300] + 0.1 * w.std(), table(3, 300, 48) * w.std()):
        assert fast.rough is not None
        assert fast.top(points, k).equal(likely(w, points, k))
    assert fast.decode(w[:6].reshape(2, 3, 48)).equal(likely(w, w[:6]).reshape(2, 3))


def between(w: Tensor, shares: list[float]) -> Tensor:
    """Points on the line from row 4 to row 3, so far past where their tokens are level: [m, d]."""
    logits = w[3:5].double() @ torch.linalg.pinv(w.double())
    leads = logits[:, 3] - logits[:, 4]
    level = leads[1] / (leads[1] - leads[0])
    past = level + torch.tensor(shares, dtype=torch.float64)[:, None]
    return past * w[3] + (1 - past) * w[4]


def test_tokens_that_are_not_clear_are_decided_by_the_exact_factorisation():
    w = wide(5.0)
    points = between(w, [1e-9, -1e-9])
    fast = PseudoInverse.of(w)
    assert fast.decode(points).tolist() == [3, 4]
    assert is_exact(fast)


def test_tokens_are_clear_by_more_than_twice_all_that_a_score_may_be_off(monkeypatch):
    """By the factorisation and by rounding, first as is expected and then as is measured."""
    rooms: list[Tensor] = []

    def watched(scores, k, room):
        rooms.append(room)
        return leaders(scores, k, room)

    monkeypatch.setattr(decoding, "leaders", watched)
    w = wide(30.0)
    points = between(w, [0.3, -0.3, 1e-3, -1e-3, 1e-9])
    fast, scorer = PseudoInverse.of(w), Scorer(w)
    solved = fast.rough.solve(points)
    scores = scorer.scores(solved)
    order = scores.sort(1, descending=True).values
    fast.top(points, 1)
    expected = fast.rough.expected(points) + scorer.moved(solved, fast.rough.longest)
    assert torch.allclose(rooms[0], 2 * expected, rtol=1e-9)
    left = (order[:, 0] - order[:, 1]).double() <= 2 * expected
    assert 0 < int(left.sum()) < len(points)
    measured = fast.rough.measured(w, points[left], scores[left])
    assert torch.allclose(rooms[1], 2 * (measured + scorer.moved(solved[left])), rtol=1e-9)
    assert len(rooms) == 2


@pytest.mark.parametrize("condition", [1e4, 1e6])
def test_a_table_near_a_missing_rank_is_not_factored_roughly(condition, monkeypatch):
    w = wide(condition)
    points = w[:200].double() + 0.05 * w.std() * table(5, 200, 48)
    assert PseudoInverse.of(w).rough is None
    assert PseudoInverse.of(w).decode(points)[:, None].equal(likely(w, points))
    # What it is kept from: trusted all the same, a rough factorisation says something else.
    solved = torch.linalg.solve(gram(w, torch.float32), points.T).T
    assert not (solved @ w.double().T).argmax(1)[:, None].equal(likely(w, points))


# Shapes and dtypes.


def test_parallel_rows_mislead_the_pseudo_inverse_and_not_the_nearest_row():
    w = table()
    w[1] = 2 * w[0]
    assert PseudoInverse.of(w).decode(w[:1]).tolist() == [1]
    assert nearest(w, w).tolist() == list(range(ROWS))


def test_the_few_nearest_rows_come_in_their_order():
    w, points = table(), table(3, 20, COLUMNS).reshape(4, 5, COLUMNS)
    slow = torch.cdist(points, w).sort(-1).indices[..., :3]
    assert nearest_few(w, points, 3).equal(slow)
    assert nearest_few(w.float(), points, 3).equal(slow)
    assert not nearest_few(w, points, 3).equal(slow.flip(-1))


@pytest.mark.parametrize("condition", [1e1, 1e6, None])
def test_every_method_keeps_leading_axes_and_what_stands_in_them(condition):
    w = deficient(0) if condition is None else of_condition(condition)
    fast = PseudoInverse.of(w)
    points, weights = table(7, 6, COLUMNS), table(8, 6, ROWS)
    assert torch.allclose(
        fast.logits(points.reshape(2, 3, -1)).flatten(0, 1), fast.logits(points), rtol=1e-9
    )
    assert torch.allclose(
        fast.apply(weights.reshape(2, 3, -1)).flatten(0, 1), fast.apply(weights), rtol=1e-9
    )
    assert fast.top(points.reshape(2, 3, -1), 2).flatten(0, 1).equal(fast.top(points, 2))
    for k in (1, 2, 4):
        assert fast.top(points, k).equal(likely(w, points, k))


def test_everything_is_made_where_the_table_is():
    w, points = wide(5.0), table(3, 40, 48)

    def decoded():
        fast, exact = PseudoInverse.of(w), PseudoInverse.of(w.double())
        result = recovery(exact)
        return (
            fast.top(points, 2),
            fast.logits(points),
            result.recovered,
            result.margins,
            nearest(w, points),
            has_duplicate(w),
            gram(w, torch.float32),
        )

    usual = decoded()
    with torch.device("meta"):  # where what is made without a device would be, and be nothing
        assert all(one.equal(other) for one, other in zip(decoded(), usual, strict=True))
