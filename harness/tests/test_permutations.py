"""Permutations: which are drawn, and which are not."""

from __future__ import annotations

import torch
from hypothesis import HealthCheck, find, given, settings
from hypothesis import strategies as st

from fixtures.permutations import orders

SOME = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
HASTY = settings(database=None, deadline=None, max_examples=500)


def drawn(n, last_fixed=False, examples=100):
    """All orders of ``n`` places that some draws give, the same ones each time."""
    seen = set()

    @settings(max_examples=examples, database=None, deadline=None, derandomize=True)
    @given(orders(n, last_fixed))
    def collect(order):
        seen.add(tuple(order.tolist()))

    collect()
    return seen


def moved(order):
    return int((order != torch.arange(len(order))).sum())


@SOME
@given(st.integers(1, 12), st.booleans(), st.data())
def test_orders_are_permutations_and_the_identity_only_where_there_is_no_other(n, fixed, data):
    order = data.draw(orders(n, fixed))
    assert sorted(order.tolist()) == list(range(n))
    assert (moved(order) == 0) == (n - fixed < 2)
    assert not fixed or int(order[-1]) == n - 1


def test_every_order_of_three_places_but_the_identity_is_drawn():
    assert drawn(3) == {(0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)}
    assert drawn(3, last_fixed=True) == {(1, 0, 2)}
    assert drawn(2) == {(1, 0)}


def test_without_a_word_the_last_place_is_free():
    assert int(find(orders(4), lambda order: int(order[-1]) != 3, settings=HASTY)[-1]) != 3
    assert all(order[-1] == 3 for order in drawn(4, last_fixed=True))


def test_any_two_places_can_be_exchanged():
    exchanges = {order for order in drawn(5, examples=200) if moved(torch.tensor(order)) == 2}
    assert len(exchanges) == 10


def test_orders_of_many_places_move_nearly_all_or_two():
    far = find(orders(30), lambda order: moved(order) > 25, settings=HASTY)
    assert sorted(far.tolist()) == list(range(30))
    assert find(orders(30), lambda order: True, settings=HASTY).tolist()[:3] == [1, 0, 2]


def test_shuffles_are_more_than_a_few():
    assert sum(moved(torch.tensor(order)) > 2 for order in drawn(9, examples=200)) > 40


def test_the_same_seed_shuffles_alike():
    """A draw that is replayed is the same order: torch's own generator is left alone."""
    before = torch.random.get_rng_state()
    twice = [find(orders(9), lambda order: moved(order) > 5, settings=HASTY) for _ in range(2)]
    assert sorted(twice[0].tolist()) == sorted(twice[1].tolist())
    assert torch.random.get_rng_state().equal(before)
