"""Rounding as another machine's: by one place, alike for equal calls, through all of torch."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from assay.harness.models.reference.rounding import BITS, Rounding
from assay.harness.tests.support import randoms

normal = functools.partial(randoms.normal, dtype=torch.float32)

pytestmark = pytest.mark.usefixtures("itself")

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def places(one: Tensor, other: Tensor) -> Tensor:
    """By how many floating numbers the elements lie apart, of one sign."""
    assert (one.sign() == other.sign()).all()
    bits = BITS[one.dtype]
    return one.view(bits).long() - other.view(bits).long()


def at(tensor: Tensor, address: int) -> Tensor:
    """A copy that begins at an address with this remainder by 64."""
    room = torch.zeros(tensor.nbytes + 64, dtype=torch.uint8)
    shift = (address - room.data_ptr()) % 64
    return room[shift : shift + tensor.nbytes].view(tensor.dtype).view(tensor.shape).copy_(tensor)


SUMS = {
    "product": lambda x: x @ x.T,
    "product added": lambda x: torch.addmm(x, x, x),
    "batch of products": lambda x: torch.bmm(x[None], x[None]),
    "linear": lambda x: F.linear(x, x, x[0]),
    "sum": lambda x: x.sum(0),
    "mean": lambda x: x.mean(-1),
    "variance": lambda x: x.var(-1),
    "norm": lambda x: torch.linalg.vector_norm(x, dim=1),
    "cumulative sum": lambda x: x.cumsum(0),
    "softmax": lambda x: x.softmax(-1),
    "log of softmax": lambda x: x.log_softmax(-1),
    "layer norm": lambda x: F.layer_norm(x, (32,)),
    "group norm": lambda x: F.group_norm(x[None], 8),
    "convolution": lambda x: F.conv1d(x[None], x[:, :, None]),
    "attention": lambda x: F.scaled_dot_product_attention(*[x[None, None]] * 3),
    "sum at indices": lambda x: torch.zeros_like(x).index_add_(0, torch.arange(32) % 5, x),
}


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_sum_is_moved_by_at_most_one_place(dtype):
    values = normal(32, 32, dtype=dtype)
    for name, function in SUMS.items():
        usual = function(values)
        with Rounding(0):
            moved = places(function(values), usual)
        assert set(moved.unique().tolist()) == {-1, 0, 1}, name


def test_equal_calls_on_equal_memory_give_equal_bits_and_others_do_not():
    values = at(normal(16, 16), 0)
    with Rounding(0):
        once = values @ values
        assert (values @ values).equal(once)
        assert (at(values, 0) @ values).equal(once)
        assert not (at(values, 24) @ values).equal(once)  # other addresses
        assert not (values[:8] @ values).equal(once[:8])  # another shape
        assert not (values @ values.T.contiguous().T).equal(once)  # other strides
    with Rounding(0):
        assert (values @ values).equal(once)
    with Rounding(1):
        assert not (values @ values).equal(once)
    assert (values @ values).equal(values.matmul(values))


def test_what_is_moved_does_not_depend_on_the_process():
    with Rounding(3):
        values = at(torch.full((12, 2), 1 / 3), 0).softmax(0)
    moved = places(values, torch.full((12, 2), 1 / 12)).flatten().tolist()
    assert moved == MOVED


MOVED = [0, 0, -1, -1, 1, -1, 0, 0, 0, 0, 0, -1, 1, 0, -1, -1, -1, -1, 0, 0, 1, 1, 1, -1]
"""What the test above came to in another process."""


@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_of_small_whole_numbers_are_exact(dtype):
    values = torch.arange(-4, 4).repeat(8, 1).to(dtype)
    with Rounding(0):
        assert (values @ values.T).equal((values.double() @ values.T.double()).to(dtype))
        assert values.sum().item() == -32
        assert torch.ones(1, 5, dtype=dtype).softmax(0).equal(torch.ones(1, 5, dtype=dtype))


EXACT = {
    "the largest": lambda x: x.max(1).values,
    "the few largest": lambda x: x.topk(3).values,
    "an order": lambda x: x.sort(1).values,
    "rows": lambda x: x[[3, 1]],
    "a joined tensor": lambda x: torch.cat([x, x]),
    "a copy in other strides": lambda x: x.T.contiguous(),
    "an element-wise product": lambda x: x * x,
    "rows put in place": lambda x: x.index_put((torch.tensor([1]),), x[:1]),
    "the largest at indices": lambda x: x.scatter_reduce(0, torch.ones(8, 8).long(), x, "amax"),
}


def test_what_is_chosen_or_moved_is_exact():
    values = normal(8, 8)
    for name, function in EXACT.items():
        usual = function(values)
        with Rounding(0):
            assert function(values).equal(usual), name


def test_what_is_added_to_leaves_the_rest_as_it_was():
    values, more = normal(64, 8), normal(16, 8, seed=1)
    with Rounding(0):
        added = values.index_add(0, torch.arange(16), more)
        put = values.index_put((torch.arange(16),), more, accumulate=True)
    for result in (added, put):
        assert result[16:].equal(values[16:])
        assert not result[:16].equal(values[:16] + more)
