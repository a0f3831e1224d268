"""Draws by seed: independent of how they are asked for, and permutations of the promised kind."""

from __future__ import annotations

import pytest
import torch

from assay.harness.checking.draws import Draws

MANY = Draws(0, "X1", range(200))
KINDS = ("anywhere", "fixed", "moved")


def permutations(orders):
    n = orders.shape[1]
    return bool((orders.sort(dim=1).values == torch.arange(n)).all())


def still(orders):
    """Which places keep what stood there: bool [draws, n]."""
    return orders == torch.arange(orders.shape[1])


def everything(draws):
    """All that can be drawn, as one list of tensors [draws, …]."""
    return [
        draws.integers(0, 1000),
        draws.normal(2, 3),
        *(draws.orders(6, last) for last in KINDS),
        *(draws.exchanges(6, first) for first in (True, False)),
    ]


# The same draw, however it is asked for.


@pytest.mark.parametrize("block", [1, 7, 64])
def test_a_draw_does_not_depend_on_the_block_it_is_in(block):
    whole = everything(MANY)
    for first in range(0, 40, block):
        numbers = range(first, first + block)
        for part, of_all in zip(everything(Draws(0, "X1", numbers)), whole, strict=True):
            assert torch.equal(part, of_all[first : first + block])


def test_some_of_the_draws_are_the_same_draws():
    odd = MANY.only(lambda i: i % 2 == 1)
    assert (list(odd)[:3], len(odd)) == ([1, 3, 5], 100)
    for part, of_all in zip(everything(odd), everything(MANY), strict=True):
        assert torch.equal(part, of_all[1::2])


@pytest.mark.parametrize("other", [Draws(1, "X1", range(200)), MANY.for_claim("X2")])
def test_another_seed_claim_or_purpose_draws_otherwise(other):
    for one, another in zip(everything(MANY), everything(other), strict=True):
        assert not torch.equal(one, another)
    assert not torch.equal(MANY.normal(4, purpose="one"), MANY.normal(4, purpose="other"))


def test_the_global_generator_is_neither_asked_nor_moved():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    one = everything(MANY)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(4)
    assert all(map(torch.equal, one, everything(MANY)))


def test_whole_numbers_reach_both_ends_and_not_beyond():
    assert MANY.integers(3, 6).unique().tolist() == [3, 4, 5]


# Permutations.


@pytest.mark.parametrize("last", KINDS)
@pytest.mark.parametrize("n", [3, 5, 48])
def test_orders_are_permutations_and_never_the_identity(last, n):
    orders = MANY.orders(n, last)
    assert orders.shape == (200, n)
    assert permutations(orders)
    assert not still(orders).all(1).any()


@pytest.mark.parametrize("n", [3, 4, 12])
def test_the_last_place_is_fixed_moved_or_either(n):
    assert still(MANY.orders(n, "fixed"))[:, -1].all()
    assert not still(MANY.orders(n, "moved"))[:, -1].any()
    anywhere = still(MANY.orders(n))[:, -1]
    assert anywhere.any()
    assert not anywhere.all()


def test_every_permutation_is_drawn():
    each = {last: {tuple(o) for o in MANY.orders(3, last).tolist()} for last in KINDS}
    assert {last: len(orders) for last, orders in each.items()} == {
        "anywhere": 5,
        "fixed": 1,
        "moved": 4,
    }


@pytest.mark.parametrize(
    ("n", "last"), [(1, "anywhere"), (1, "moved"), (2, "fixed"), (0, "fixed")]
)
def test_too_few_places_have_no_order(n, last):
    with pytest.raises(ValueError, match=f"{n} positions have no such permutation"):
        MANY.orders(n, last)


# Exchanges.


@pytest.mark.parametrize("n", [4, 5, 24])
@pytest.mark.parametrize("first", [True, False])
def test_an_exchange_is_of_two_places_before_the_last(n, first):
    orders = MANY.exchanges(n, first)
    assert permutations(orders)
    assert ((~still(orders)).sum(1) == 2).all()
    assert still(orders)[:, -1].all()
    assert (still(orders)[:, 0] != first).all()
    assert torch.equal(orders.gather(1, orders), torch.arange(n).expand(200, n))


def test_every_place_is_exchanged_and_three_are_too_few():
    with_first = MANY.exchanges(5, first=True)
    assert with_first[:, 0].unique().tolist() == [1, 2, 3]
    assert len(MANY.exchanges(5, first=False).unique(dim=0)) == 3
    with pytest.raises(ValueError, match="3 positions have no such exchange"):
        MANY.exchanges(3, first=False)
