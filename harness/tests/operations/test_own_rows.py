"""Which tokens are recovered from their own rows: as by the whole projection in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from assay.harness.operations import own_rows
from assay.harness.operations.decoding import PseudoInverse
from assay.harness.operations.own_rows import largest_others, recovered_after, recovery
from assay.harness.tests.support.matrices import (
    COLUMNS,
    ROWS,
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


TABLES = {
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


@pytest.mark.parametrize("name", TABLES)
def test_the_numbers_are_those_of_float64(name):
    w = TABLES[name]()
    result, (recovered, margins, leverages) = recovery(PseudoInverse.of(w)), direct(w)
    assert result.recovered.equal(recovered)
    assert bool(((result.margins - margins).abs() <= result.doubts + 1e-12).all())
    assert float(result.margins.min()) == pytest.approx(float(margins.min()), rel=1e-9, abs=1e-12)
    assert torch.allclose(result.leverages, leverages, rtol=1e-9, atol=1e-9)
    assert bool((result.doubts < 1e-4).all())


def test_the_tables_have_tokens_of_both_kinds():
    lost = {name: int((~direct(TABLES[name]())[0]).sum()) for name in TABLES}
    assert lost["plain"] == 0
    assert lost["with equals"] >= 22
    assert min(lost["spread"], lost["with zeros"], lost["near ties"]) > 0


def decided_in_float64(monkeypatch) -> list[int]:
    """How many tokens are decided in float64, call by call."""
    counts: list[int] = []
    plain = own_rows._in_float64

    def counted(inverse, ids):
        counts.append(len(ids))
        return plain(inverse, ids)

    monkeypatch.setattr(own_rows, "_in_float64", counted)
    return counts


def test_float64_decides_near_ties_alone(monkeypatch):
    counts = decided_in_float64(monkeypatch)
    recovery(PseudoInverse.of(wide(2.0)))
    recovery(PseudoInverse.of(near_ties()))
    assert counts[0] <= 3  # the least margin, and no tie
    assert 10 <= counts[1] <= 40


def test_a_wrong_product_beyond_the_doubt_is_seen_and_within_it_changes_nothing(monkeypatch):
    w = wide(2.0)
    right = recovery(PseudoInverse.of(w))
    plain = own_rows.largest_others

    def off_by(share):
        shift = share * right.doubts.float()
        monkeypatch.setattr(own_rows, "largest_others", lambda rows: plain(rows) + shift)
        return recovery(PseudoInverse.of(w)).margins

    assert bool(((off_by(0.5) - right.margins).abs() <= right.doubts).all())
    assert bool(((off_by(3.0) - right.margins).abs() > right.doubts).any())


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


def test_a_changed_row_costs_no_second_projection(monkeypatch):
    w = wide(5.0)
    before, doubled = PseudoInverse.of(w), w.clone()
    doubled[1] = 2 * doubled[0]
    result = recovery(before)
    monkeypatch.delattr(own_rows, "largest_others")
    counts = decided_in_float64(monkeypatch)
    after = recovered_after(PseudoInverse.of(doubled), torch.tensor([1]), before, result)
    assert after.equal(direct(doubled)[0])
    assert 1 <= int((~after).sum()) <= 3
    assert counts[0] <= 5


# What the projection onto the range of the table says.


def test_recovery_is_read_off_the_projection_onto_the_table_s_range():
    w = table()
    w[1] = 2 * w[0]
    result, projection = recovery(PseudoInverse.of(w)), w @ torch.linalg.pinv(w)
    own = projection.diagonal()
    others = (projection - 1e3 * torch.eye(ROWS)).amax(1)
    assert torch.allclose(result.leverages, own, rtol=1e-9)
    assert bool(((result.margins - own + others).abs() <= result.doubts).all())
    assert result.recovered.equal(projection.argmax(1) == torch.arange(ROWS))
    assert result.recovered[:3].tolist() == [False, True, True]
    assert result.recovered.equal(result.margins > 0)


def test_recovery_tells_how_the_table_was_factored():
    w = of_condition(12.5)
    assert recovery(PseudoInverse.of(w)).decoder == f"cholesky, condition 12.5, rank {COLUMNS}"


def test_of_two_rows_that_are_the_same_the_later_is_not_recovered():
    w = table(0, 40, 40) + 4 * torch.eye(40)
    w = torch.cat([w, w[2:3]])
    result = recovery(PseudoInverse.of(w))
    assert result.recovered.nonzero()[:, 0].tolist() == list(range(40))
    assert result.margins[[2, 40]].abs().max() < 1e-12 < result.margins[:2].min()


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
