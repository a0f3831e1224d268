"""No copy of a large embedding matrix in float64 is made to decode."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from assay.claims.decoding import test_decoding as claims
from assay.harness.inversion import decoding
from assay.harness.inversion.decoding import PseudoInverse
from assay.harness.inversion.own_rows import whitened
from assay.harness.operations import likeliest
from assay.harness.operations.equal_rows import duplicates
from assay.harness.operations.factors import triangle
from assay.harness.tests.support.allocated import Allocated
from assay.harness.tests.support.randoms import normal

V, D = 200_000, 256

CAP = likeliest.BYTES_AT_ONCE

WORK: dict[str, Callable[[Tensor, Tensor], object]] = {
    "duplicates": lambda w, points: duplicates(w),
    "logits": lambda w, points: PseudoInverse.of(w).logits(points),
    "pseudo-inverse of weights": lambda w, points: PseudoInverse.of(w).apply(
        points.new_ones(1, V)
    ),
    "tokens": lambda w, points: PseudoInverse.of(w).top(points, 5),
    "nearest": lambda w, points: decoding.nearest_few(w, points, 5),
    "ranks": lambda w, points: decoding.ranks_by_nearness(w, points, torch.arange(len(points))),
    "all alike": lambda w, points: decoding.nearest_few(w[:1].expand(V, D), points, 5),
    "a triangle": lambda w, points: triangle(w),
    "leverages": lambda w, points: whitened(PseudoInverse.of(w)),
    "standard deviation": lambda w, points: likeliest.std(w),
    "the limit": lambda w, points: claims.regularised(
        claims.gram(w, torch.float64), claims.times_table(points.new_ones(V), w), 0.1
    ),
    "room": lambda w, points: claims.room_around(w, torch.arange(8)),
}


@pytest.fixture(scope="module")
def large():
    return normal(V, D, seed=0).bfloat16()


@pytest.mark.nightly
@pytest.mark.parametrize("name", WORK)
def test_what_is_allocated_at_a_time_is_less_than_a_copy_in_float64(large, name):
    points = large[:8].double() + 0.01
    with Allocated() as memory:
        WORK[name](large, points)
    assert memory.largest > 0
    assert memory.peak < CAP < 8 * large.numel()


def test_a_copy_in_float64_is_seen(large):
    with Allocated() as memory:
        torch.linalg.vector_norm(large.double(), dim=1)
    assert memory.largest == 8 * large.numel() > CAP


def test_a_standard_deviation_by_chunks_is_torch_s(monkeypatch):
    w = normal(5000, 7, seed=1).float() + 3
    whole = likeliest.std(w)
    assert whole == float(w.double().std())
    monkeypatch.setattr(likeliest, "BYTES_AT_ONCE", 1000)
    assert likeliest.std(w) == pytest.approx(whole, rel=1e-12)
