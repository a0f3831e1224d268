"""Factorisations: what they say of a table, and rough ones of how far off they may be."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from assay.harness.inversion.decoding import PseudoInverse
from assay.harness.operations import factors, likeliest
from assay.harness.operations.factors import (
    CHOLESKY_UP_TO,
    DOUBT_UP_TO,
    EPSILON,
    QR_UP_TO,
    Factored,
    Rough,
    gram,
)
from assay.harness.operations.likeliest import ROWS_AT_ONCE
from assay.harness.tests.support.matrices import (
    COLUMNS,
    deficient,
    of_condition,
    table,
    wide,
)


def energy(points: Tensor, square: Tensor) -> Tensor:
    """√(p G⁻¹ p) of points [m, d], the slow way: [m]."""
    return (points * torch.linalg.solve(square, points.T).T).sum(1).sqrt()


# Exactly.


@pytest.mark.parametrize("condition", [1e1, 1e3, 1e6, 1e9])
def test_a_factorisation_knows_the_least_eigenvalue_and_how_far_to_trust_itself(condition):
    fast = PseudoInverse.of(of_condition(condition))
    assert fast.least == pytest.approx(condition**-2, rel=1e-2, abs=0)
    power = 2 if condition < CHOLESKY_UP_TO else 1
    expected = EPSILON * condition**power * COLUMNS
    assert fast.rounding == pytest.approx(expected, rel=2e-2, abs=0)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_of_a_missing_rank_what_is_told_is_of_the_range(seed):
    w, fast = deficient(seed), Factored.of(deficient(seed))
    sizes = torch.linalg.svdvals(w)[: fast.rank]
    assert fast.condition == pytest.approx(float(sizes[0] / sizes[-1]), rel=1e-9)
    assert fast.least == pytest.approx(float(sizes[-1] ** 2), rel=1e-9, abs=0)
    assert fast.factor.shape == (COLUMNS, fast.rank)


@pytest.mark.parametrize(
    ("condition", "method"),
    [
        (0.9 * CHOLESKY_UP_TO, "cholesky"),
        (1.1 * CHOLESKY_UP_TO, "qr"),
        (0.9 * QR_UP_TO, "qr"),
        (1.1 * QR_UP_TO, "svd"),
    ],
)
def test_the_method_changes_where_it_says(condition, method):
    fast = Factored.of(of_condition(condition))
    assert (fast.method, fast.rank) == (method, COLUMNS)
    assert fast.condition == pytest.approx(condition, rel=1e-2)


def test_a_table_of_zeros_in_a_column_has_a_rank_less():
    w = table()
    w[:, 3] = 0
    fast = Factored.of(w)
    assert (fast.method, fast.rank) == ("svd", COLUMNS - 1)


def test_a_rank_is_missing_where_a_size_is_lost_in_the_rounding_of_the_largest():
    u, _, vh = torch.linalg.svd(table(), full_matrices=False)
    sizes = torch.tensor([1.0] + [1e-8] * (COLUMNS - 2) + [1e-15], dtype=torch.float64)
    fast = Factored.of((u * sizes) @ vh)
    assert (fast.method, fast.rank) == ("svd", COLUMNS - 1)


def test_a_square_table_is_factored_by_qr_and_one_with_too_few_rows_is_not():
    square = of_condition(1e6)[:COLUMNS] + 1e-5 * torch.eye(COLUMNS)
    assert Factored.of(square).method == "qr"
    assert Factored.of(square[:-1]).method == "svd"


def test_the_gram_matrix_is_summed_over_parts_of_rows_and_columns(monkeypatch):
    w = table()
    monkeypatch.setattr(factors, "COLUMNS_AT_ONCE", 5)
    monkeypatch.setattr(likeliest, "ROWS_AT_ONCE", 7)
    square = gram(w, torch.float64)
    assert torch.allclose(square, w.T @ w, rtol=1e-13)
    assert square.equal(square.T)
    assert gram(w.float(), torch.float32).dtype == torch.float64


# Roughly.


def test_a_rough_factorisation_knows_its_rank_and_the_longest_row_there_could_be():
    w = wide(30.0)
    rough = Rough.of(w)
    assert (rough.rank, rough.method) == (48, "cholesky")
    assert rough.longest == pytest.approx(float(w.norm()), rel=1e-6)
    assert rough.longest >= float(w.norm(dim=1).max())


def test_a_table_of_sixteen_bits_is_multiplied_in_float32():
    w = wide(5.0).bfloat16()
    rough, square = Rough.of(w), w.double().T @ w.double()
    off = rough.factor @ rough.factor.T - square
    assert float(off.abs().max() / square.abs().max()) < 1e-6


def test_doubt_and_noise_grow_with_how_unlike_the_columns_are():
    w = wide(30.0)
    rough, unit = Rough.of(w), torch.finfo(torch.float32).eps / 2
    square = w.double().T @ w.double()
    lengths = square.diagonal().sqrt()
    spread = (torch.linalg.inv(square) * lengths.outer(lengths)).trace().sqrt()
    assert rough.doubt == pytest.approx(float(ROWS_AT_ONCE**0.5 * unit * spread**2), rel=1e-3)
    assert rough.noise == pytest.approx(float(4 * unit * spread), rel=1e-3)


def test_narrowed_products_are_doubted_more(monkeypatch):
    plain = Rough.of(wide(2.0))
    monkeypatch.setattr(factors, "narrowing", lambda table: 1e-3)
    narrowed, unit = Rough.of(wide(2.0)), torch.finfo(torch.float32).eps / 2
    more = 1 + 1e-3 / (ROWS_AT_ONCE**0.5 * unit)
    assert narrowed.doubt == pytest.approx(plain.doubt * more, rel=1e-6)
    assert narrowed.noise == pytest.approx(plain.noise * (1 + 1e-3 / (4 * unit)), rel=1e-6)


def test_a_table_too_doubtful_is_not_factored_roughly(monkeypatch):
    doubt = Rough.of(wide(30.0)).doubt
    assert 0 < doubt <= DOUBT_UP_TO
    monkeypatch.setattr(factors, "DOUBT_UP_TO", doubt)
    assert Rough.of(wide(30.0)) is not None
    monkeypatch.setattr(factors, "DOUBT_UP_TO", 0.999 * doubt)
    assert Rough.of(wide(30.0)) is None


def test_what_is_expected_of_scores_is_twice_the_doubt_of_each_point():
    w, points = wide(30.0), table(4, 20, 48)
    rough = Rough.of(w)
    norms = energy(points, w.double().T @ w.double())
    assert torch.allclose(rough.expected(points), 2 * rough.doubt * norms, rtol=1e-3)


def test_what_is_measured_of_scores_is_what_they_leave_of_each_point():
    w, points = wide(30.0), table(4, 20, 48)
    rough, square = replace(Rough.of(w), noise=0.5), w.double().T @ w.double()
    scores = 1e-3 * table(5, 20, 2000).float()
    left = energy(points - scores.double() @ w.double(), square)
    expected = 2 * left + 0.5 * energy(points, square)
    assert torch.allclose(rough.measured(w, points, scores), expected, rtol=1e-3)
    # Of good scores next to nothing is left.
    good = rough.solve(points).float() @ w.T
    rest = rough.measured(w, points, good) - 0.5 * energy(points, square)
    assert float((rest / energy(points, square)).abs().max()) < 1e-3


def test_a_rough_solution_is_near_the_exact_one():
    w, points = wide(5.0), table(4, 20, 48)
    exact = torch.linalg.solve(w.double().T @ w.double(), points.T).T
    off = (Rough.of(w).solve(points) - exact).norm(dim=1) / exact.norm(dim=1)
    assert 0 < float(off.max()) < 1e-4
