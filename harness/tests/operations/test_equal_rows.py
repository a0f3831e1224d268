"""Equal rows of a matrix, found without sorting rows."""

from __future__ import annotations

import pytest
import torch

from assay.harness.operations import equal_rows, likeliest
from assay.harness.operations.equal_rows import duplicates, first_equal, has_duplicate
from assay.harness.tests.support.matrices import table


def test_twins_are_rows_that_are_the_same_bit_for_bit():
    w = table()
    w[5] = w[2]
    w[6] = w[3] * (1 + 1e-15)
    assert has_duplicate(w)[[2, 3, 5, 6]].tolist() == [True, False, True, False]


@pytest.mark.parametrize("at_once", [4, 2048])
def test_duplicates_are_groups_of_ids_in_their_order(monkeypatch, at_once):
    monkeypatch.setattr(likeliest, "ROWS_AT_ONCE", at_once)
    w = table()
    w[[5, 9]] = w[2].clone()
    w[7] = w[1]
    assert duplicates(w) == [[1, 7], [2, 5, 9]]
    assert first_equal(w)[:10].tolist() == [0, 1, 2, 3, 4, 2, 6, 1, 8, 2]
    assert duplicates(table()) == []
    assert duplicates(w.bfloat16()[[1, 7]]) == [[0, 1]]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_equal_rows_are_those_that_sorting_finds(dtype):
    few = torch.randint(0, 2, (300, 6), generator=torch.Generator().manual_seed(0))
    w = (few - 0.5).to(dtype)
    _, group = torch.unique(w.double(), dim=0, return_inverse=True)
    slow = [int((group == g).nonzero()[0]) for g in group]
    assert first_equal(w).tolist() == slow


def test_zero_equals_minus_zero_and_nan_equals_nothing():
    w = torch.zeros(5, 3)
    w[1] = -0.0
    w[2:4] = torch.nan
    assert first_equal(w).tolist() == [0, 0, 2, 3, 0]


def test_rows_with_the_same_number_are_compared(monkeypatch):
    plain = equal_rows._numbers

    def colliding(rows, ids, seed):
        return plain(rows, ids, seed) if seed > 2 else torch.zeros_like(ids)

    monkeypatch.setattr(equal_rows, "_numbers", colliding)
    w = table()
    w[[5, 9]] = w[2].clone()
    w[7] = w[1]
    assert duplicates(w) == [[1, 7], [2, 5, 9]]


def test_numbers_of_sixteen_bits_use_all_bits():
    w = torch.arange(2**12).reshape(-1, 1).to(torch.int16).view(torch.float16)
    numbers = equal_rows._numbers(w, torch.arange(len(w)), 0)
    assert len(numbers.unique()) == len(w)
    assert len((numbers % 2**32).unique()) > len(w) // 2
