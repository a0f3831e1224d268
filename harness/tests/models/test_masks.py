"""Masks, against their definitions written out in loops."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from assay.harness.models.subject import masks

permuted = st.integers(1, 8).flatmap(lambda n: st.permutations(range(n))).map(torch.tensor)


def visibility(mask: torch.Tensor) -> list[list[bool]]:
    """Query by key: whether the additive mask lets it through."""
    assert set(mask.unique().tolist()) <= {0.0, torch.finfo(mask.dtype).min}
    return (mask[0, 0] == 0).tolist()


@pytest.mark.parametrize("ahead", [-1, 0, 1])
def test_a_causal_mask_shows_each_query_what_is_not_after_it(ahead):
    shown = visibility(masks.causal(5, torch.float32, ahead=ahead))
    assert shown == [[key <= query + ahead for key in range(5)] for query in range(5)]


def test_a_full_mask_shows_everything():
    assert all(all(row) for row in visibility(masks.full(4, torch.float32)))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_masks_are_four_dimensional_in_the_dtype_asked_for(dtype):
    mask = masks.causal(3, dtype)
    assert (mask.dtype, mask.shape) == (dtype, (1, 1, 3, 3))
    assert torch.isfinite(mask).all()


@given(permuted)
def test_after_conjugation_tokens_see_whom_they_saw(order):
    n = len(order)
    before = visibility(masks.causal(n, torch.float32))
    after = visibility(masks.conjugated(masks.causal(n, torch.float32), order))
    for j in range(n):
        for k in range(n):
            assert after[j][k] == before[order[j]][order[k]]


def test_a_padded_row_sees_what_a_causal_one_does_and_no_padding():
    mask = masks.padded(torch.tensor([[1, 1, 1], [0, 1, 1]]), torch.float32)
    expected = [[[1, 0, 0], [1, 1, 0], [1, 1, 1]], [[0, 0, 0], [0, 1, 0], [0, 1, 1]]]
    assert mask.shape == (2, 1, 3, 3)
    assert (mask[:, 0] == 0).int().tolist() == expected
    least = torch.finfo(torch.float32).min
    assert set(mask.unique().tolist()) == {0.0, least}
    assert masks.padded(torch.ones(1, 2), torch.float64).dtype == torch.float64
    assert masks.padded(torch.ones(1, 2, device="meta"), torch.float32).device.type == "meta"
