"""Decoding embeddings: the fast pseudo-inverse against torch's, and where nearest rows win."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from harness.decoding import PseudoInverse, has_twin, nearest

ROWS, COLUMNS = 60, 12


def table(seed: int = 0, rows: int = ROWS, columns: int = COLUMNS) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, columns, generator=generator, dtype=torch.float64)


def of_condition(condition: float, seed: int = 0) -> Tensor:
    """A table whose singular values fall evenly, in decades, from 1 to 1 / condition."""
    u, _, vh = torch.linalg.svd(table(seed), full_matrices=False)
    decades = torch.linspace(0, 1, COLUMNS, dtype=torch.float64)
    return (u * condition**-decades) @ vh


def deficient(seed: int) -> Tensor:
    """A table with a column that is another one, a sum of two, or half of the rank gone."""
    w = table(seed)
    if seed % 3 == 0:
        w[:, -1] = w[:, 0]
    elif seed % 3 == 1:
        w[:, -1] = w[:, 0] + w[:, 1]
    else:
        w = w[:, :6] @ table(seed + 100, 6, COLUMNS)
    return w


def errors(w: Tensor) -> tuple[float, float]:
    """How far `logits` and `apply` are from torch's pseudo-inverse, relative to it."""
    fast, slow = PseudoInverse.of(w), torch.linalg.pinv(w, rtol=max(w.shape) * 2.3e-16)
    points, weights = table(7, 5, w.shape[1]), table(8, 5, w.shape[0])
    pairs = [(fast.logits(points), points @ slow), (fast.apply(weights), weights @ slow.T)]
    return tuple(float((mine - theirs).norm() / theirs.norm()) for mine, theirs in pairs)


@pytest.mark.parametrize(
    ("condition", "method"), [(1e1, "cholesky"), (1e3, "cholesky"), (1e6, "qr"), (1e9, "qr")]
)
def test_the_method_follows_the_condition(condition, method):
    fast = PseudoInverse.of(of_condition(condition))
    assert (fast.method, fast.rank) == (method, COLUMNS)
    assert fast.condition == pytest.approx(condition, rel=1e-2)


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


def test_fewer_tokens_than_dimensions_are_decoded_all_the_same():
    w = table(0, rows=5)
    fast = PseudoInverse.of(w)
    assert (fast.method, fast.rank) == ("svd", 5)
    assert max(errors(w)) < 1e-10
    assert fast.decode(w).tolist() == [0, 1, 2, 3, 4]


def test_logits_and_weights_keep_their_leading_axes():
    fast = PseudoInverse.of(table())
    assert fast.logits(torch.zeros(2, 3, COLUMNS)).shape == (2, 3, ROWS)
    assert fast.apply(torch.zeros(2, 3, ROWS)).shape == (2, 3, COLUMNS)


def test_a_float32_table_is_factored_in_float64():
    w = table().float()
    exact = table(7, 5, COLUMNS) @ torch.linalg.pinv(w.double())
    assert torch.allclose(PseudoInverse.of(w).logits(table(7, 5, COLUMNS)), exact, rtol=1e-10)


def test_parallel_rows_mislead_the_pseudo_inverse_and_not_the_nearest_row():
    w = table()
    w[1] = 2 * w[0]
    assert PseudoInverse.of(w).decode(w[:1]).tolist() == [1]
    assert nearest(w, w).tolist() == list(range(ROWS))


def test_the_nearest_row_is_the_one_at_the_least_distance():
    w, points = table(), table(3, 20, COLUMNS)
    slow = [int((w - point).norm(dim=1).argmin()) for point in points]
    assert nearest(w, points).tolist() == slow
    assert (points @ w.T).argmax(-1).tolist() != slow


def test_of_duplicate_rows_the_first_is_decoded():
    w = table()
    w[5] = w[2]
    assert nearest(w, w[[2, 5]]).tolist() == [2, 2]


def test_twins_are_rows_that_are_the_same_bit_for_bit():
    w = table()
    w[5] = w[2]
    w[6] = w[3] * (1 + 1e-15)
    assert has_twin(w)[[2, 3, 5, 6]].tolist() == [True, False, True, False]
