"""The rank of a token for an embedding: its place in the whole order of a decoder."""

from __future__ import annotations

import pytest
import torch

from assay.harness.inversion.decoding import PseudoInverse, ranks_by_nearness
from assay.harness.tests.support.matrices import COLUMNS, ROWS, table


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ranks_are_places_in_the_whole_order(dtype):
    w, points = table(), table(3, 20, COLUMNS).reshape(4, 5, COLUMNS)
    ids = torch.arange(20).view(4, 5)
    by_nearness = torch.cdist(points, w).argsort(-1)
    by_logits = (points @ torch.linalg.pinv(w)).argsort(-1, descending=True)
    rankings = ranks_by_nearness(w.to(dtype), points, ids), PseudoInverse.of(w).ranks(points, ids)
    for ranks, order in zip(rankings, (by_nearness, by_logits), strict=True):
        assert ranks.equal(1 + (order == ids[..., None]).int().argmax(-1))
    own = torch.arange(ROWS)
    assert ranks_by_nearness(w.to(dtype), w, own).equal(torch.ones(ROWS, dtype=torch.long))


def test_rows_that_are_the_same_rank_the_same():
    w = table()
    w[5] = w[2]
    assert ranks_by_nearness(w, w[[2, 2]], torch.tensor([2, 5])).tolist() == [1, 1]
