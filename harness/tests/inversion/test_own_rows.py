"""Which tokens are recovered from their own rows: as by the whole projection in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from assay.harness.inversion import own_rows
from assay.harness.inversion.decoding import PseudoInverse
from assay.harness.inversion.own_rows import (
    bounded_others,
    largest_others,
    recovered_after,
    recovery,
)
from assay.harness.tests.support.matrices import (
    deficient,
    of_condition,
    table,
    wide,
)


def direct(w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The slow way, all logits in float64: recovered [V], margins [V] and leverages [V]."""
    inverse = PseudoInverse.of(w)
    logits = inverse.logits(w)
    room = 2 * inverse.rounding * torch.linalg.vector_norm(logits, dim=1)
    tied = logits >= (logits.amax(1) - room)[:, None]
    recovered = tied.byte().argmax(1) == torch.arange(len(w))
    mine = logits.diagonal().clone()
    return recovered, mine - logits.fill_diagonal_(-torch.inf).amax(1), mine


def spread() -> Tensor:
    """Rows of very different lengths around a common mean, as of trained models."""
    w = wide(30.0, 0.3)
    return w * torch.exp(table(9, len(w), 1)).float()


def with_equals() -> Tensor:
    w = wide(5.0)
    w[700:720] = w[3]
    w[[5, 1999]] = w[1000].clone()
    return w


def with_zeros() -> Tensor:
    w = wide(5.0)
    w[[4, 900, 1500]] = 0
    return w


def near_ties() -> Tensor:
    """Rows that are others' multiples by 1 + 1e-9 and the like: float32 cannot tell them apart."""
    w = wide(5.0).double()
    for i, by in enumerate((1e-6, -1e-7, 1e-9, -1e-12, 3e-16)):
        w[1000 + i] = w[i] * (1 + by)
    return w


def of_many_columns() -> Tensor:
    """Unrelated rows of unlike lengths, some that are others' multiples, and a row of zeros."""
    w = table(0, 1500, 512) * torch.exp(0.2 * table(1, 1500, 1))
    w[1200] = 0
    w[1300:1320] = w[100:120]
    w[1400:1410] = 2 * w[200:210]
    w[1450] = w[300] * (1 + 1e-9)
    return w.float()


TABLES = {
    "of many columns": of_many_columns,
    "plain": lambda: wide(2.0),
    "spread": spread,
    "with equals": with_equals,
    "with zeros": with_zeros,
    "near ties": near_ties,
    "of 16 bits": lambda: with_equals().bfloat16(),
    "short of a rank": lambda: deficient(0),
    "half of the rank": lambda: deficient(2),
    "ill-conditioned": lambda: of_condition(1e6),
    "few rows": lambda: table(0, rows=5),
    "one column": lambda: table(0, 40, 1),
}


FEW = 30
"""Fewer tokens than any large table here has, so that the margins of most are only bounded."""


@pytest.mark.parametrize("measured", [own_rows.MEASURED, FEW])
@pytest.mark.parametrize("name", TABLES)
def test_the_numbers_are_those_of_float64(name, measured, monkeypatch):
    monkeypatch.setattr(own_rows, "MEASURED", measured)
    w = TABLES[name]()
    result, (recovered, margins, leverages) = recovery(PseudoInverse.of(w)), direct(w)
    assert result.recovered.equal(recovered)
    least = min(len(w), FEW // 2) if measured == FEW else len(w)
    assert len(result.measured) >= least
    of_these, doubts = margins[result.measured], result.doubts[result.measured]
    assert bool(((result.margins - of_these).abs() <= doubts + 1e-12).all())
    assert bool((result.others >= leverages - margins - result.doubts - 1e-12).all())
    expected = pytest.approx(float(of_these.min()), rel=1e-9, abs=1e-12)
    assert float(result.margins.min()) == expected
    assert torch.allclose(result.leverages, leverages, rtol=1e-9, atol=1e-9)
    assert bool((result.doubts < 1e-4).all())


def decided_in_float64(monkeypatch) -> list[int]:
    """How many tokens are decided in float64, call by call."""
    counts: list[int] = []
    plain = own_rows._in_float64

    def counted(inverse, ids):
        counts.append(len(ids))
        return plain(inverse, ids)

    monkeypatch.setattr(own_rows, "_in_float64", counted)
    return counts


@pytest.mark.parametrize("name", TABLES)
def test_a_bound_is_never_below_the_largest_product(name):
    rows, leverages = own_rows.whitened(PseudoInverse.of(TABLES[name]()))
    bounds, largest = bounded_others(rows, leverages, 64), largest_others(rows)
    room = 1e-5 * leverages.max().sqrt() * leverages.sqrt()
    assert bool((bounds >= largest - room).all())


def test_float64_decides_near_ties_alone(monkeypatch):
    counts = decided_in_float64(monkeypatch)
    recovery(PseudoInverse.of(wide(2.0)))
    recovery(PseudoInverse.of(near_ties()))
    assert counts[0] <= 3  # the least margin, and no tie
    assert 10 <= counts[1] <= 40


@pytest.mark.parametrize("at_once", [1, 7, 60, 2048])
def test_the_largest_product_with_another_row_is_found_in_every_block(at_once):
    rows = table().float()
    products = rows @ rows.T
    products.fill_diagonal_(-torch.inf)
    assert torch.allclose(largest_others(rows, at_once), products.amax(1), rtol=1e-5)


@pytest.mark.parametrize("name", TABLES)
def test_a_changed_row_changes_what_float64_says_it_does(name, monkeypatch):
    w = TABLES[name]()
    before = PseudoInverse.of(w)
    result = recovery(before)
    for ids, rows in ([1], 2 * w[:1]), ([3, 0], w[[2, 4]] - w[[1, 1]]), ([2], 0 * w[:1]):
        other = w.clone()
        other[ids] = rows
        after = recovered_after(PseudoInverse.of(other), torch.tensor(ids), before, result)
        assert after.equal(direct(other)[0])


# What the projection onto the range of the table says.


@pytest.mark.parametrize("seed", range(4))
def test_rounding_does_not_decide_which_of_tied_tokens_is_recovered(monkeypatch, seed):
    """Equal rows, and a row of zeros, whose logits are all alike."""
    w = table(0, 40, 40) + 4 * torch.eye(40)
    w = torch.cat([w, w[2:3], 0 * w[:1]])
    plain = PseudoInverse.logits

    def rounded(self, embeddings):
        logits = plain(self, embeddings)
        noise = torch.randn(logits.shape, generator=torch.Generator().manual_seed(seed))
        return logits + 1e-16 * noise.double()

    monkeypatch.setattr(PseudoInverse, "logits", rounded)
    assert recovery(PseudoInverse.of(w)).recovered.nonzero()[:, 0].tolist() == list(range(40))
