"""What the strategies draw, and what their examples shrink to."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, find, given, settings
from hypothesis import strategies as st

from fixtures.permutations import orders
from fixtures.prompts import LONGEST, ROWS, chunkings, cuts, lengths, other_ids, prompts
from harness.tests.toys import fresh, toy

SOME = settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], deadline=None)
HASTY = settings(database=None, deadline=None, max_examples=2000)

padded = fresh("gpt2")
padded.config.pad_token_id = 3
of_any_length = prompts(toy("gpt2"))


@SOME
@given(st.data())
def test_prompts_have_the_lengths_and_rows_asked_for(data):
    shortest = data.draw(st.integers(1, 20))
    longest = data.draw(st.integers(shortest, 64))
    drawn = data.draw(prompts(toy("gpt2"), shortest, longest, rows=3))
    assert shortest <= drawn.length <= longest
    assert 1 <= drawn.rows <= 3
    assert drawn.ids.shape == (drawn.rows, drawn.length)


@SOME
@given(prompts(padded))
def test_ids_are_in_the_vocabulary_and_none_is_padding(drawn):
    assert 0 <= int(drawn.ids.min()) <= int(drawn.ids.max()) < padded.vocabulary
    assert not (drawn.ids == 3).any()


@pytest.mark.parametrize(("spec", "longest"), [("gpt2", 64), ("bloom", LONGEST)])
def test_prompts_reach_the_context_and_never_beyond(spec, longest):
    lengths_drawn = set()

    @SOME
    @given(prompts(toy(spec)))
    def collect(drawn):
        lengths_drawn.add(drawn.length)

    collect()
    assert 1 <= min(lengths_drawn) <= 2
    assert longest / 2 < max(lengths_drawn) <= longest


def test_the_smallest_prompt_is_one_token_in_one_row():
    assert find(of_any_length, lambda _: True, settings=HASTY).ids.tolist() == [[0]]


def test_a_failure_that_needs_two_tokens_shrinks_to_two_tokens_in_one_row():
    smallest = find(of_any_length, lambda p: p.length >= 2, settings=HASTY)
    assert smallest.ids.tolist() == [[0, 0]]


def test_a_failure_that_needs_unlike_tokens_shrinks_to_two_small_ones():
    smallest = find(of_any_length, lambda p: len(p.ids[0].unique()) > 1, settings=HASTY)
    assert sorted(smallest.ids.tolist()[0]) == [0, 1]


def test_a_failure_that_needs_a_batch_shrinks_to_two_unlike_rows():
    smallest = find(of_any_length, lambda p: p.rows > 1, settings=HASTY)
    assert smallest.ids.tolist() == [[0], [17]]


def test_many_rows_are_drawn():
    assert find(of_any_length, lambda p: p.rows == ROWS, settings=HASTY).rows == ROWS


@SOME
@given(prompts(toy("gpt2"), shortest=2), st.data())
def test_cuts_leave_something_on_both_sides(drawn, data):
    assert 1 <= data.draw(cuts(drawn)) <= drawn.length - 1


@SOME
@given(of_any_length, st.data())
def test_chunks_sum_to_the_prompt_and_none_is_empty(drawn, data):
    sizes = data.draw(chunkings(drawn))
    assert sum(sizes) == drawn.length
    assert min(sizes) >= 1
    assert len(sizes) <= 8 or sizes == [1] * drawn.length


def test_chunks_are_also_single_tokens_and_the_whole_prompt():
    drawn = find(of_any_length, lambda p: p.length == 12, settings=HASTY)
    for wanted in ([1] * 12, [12]):
        assert find(chunkings(drawn), lambda sizes, w=wanted: sizes == w, settings=HASTY) == wanted


@SOME
@given(of_any_length, st.data())
def test_other_ids_are_of_the_same_shape_and_nearly_all_others(drawn, data):
    others = data.draw(other_ids(toy("gpt2"), drawn))
    assert others.shape == drawn.ids.shape
    assert 0 <= int(others.min()) <= int(others.max()) < toy("gpt2").vocabulary
    assert (others != drawn.ids).all()


@SOME
@given(of_any_length, st.data())
def test_lengths_keep_at_least_one_token_of_each_row_and_all_of_one(drawn, data):
    kept = data.draw(lengths(drawn))
    assert len(kept) == drawn.rows
    assert min(kept) >= 1
    assert max(kept) == drawn.length


@SOME
@given(st.integers(1, 30), st.booleans(), st.data())
def test_orders_are_permutations_and_not_the_identity(n, last_fixed, data):
    order = data.draw(orders(n, last_fixed))
    assert order.sort().values.tolist() == list(range(n))
    assert torch.equal(order, torch.arange(n)) == (n - last_fixed < 2)
    if last_fixed:
        assert int(order[-1]) == n - 1


def test_orders_shrink_to_the_exchange_of_the_first_two():
    assert find(orders(6), lambda _: True, settings=HASTY).tolist() == [1, 0, 2, 3, 4, 5]


def test_orders_are_also_far_from_an_exchange():
    drawn = find(orders(8), lambda o: bool((o != torch.arange(8)).all()), settings=HASTY)
    assert drawn.sort().values.tolist() == list(range(8))


def test_prompts_are_shown_as_tokens_with_their_ids():
    drawn = find(of_any_length, lambda p: p.ids.shape == (2, 2), settings=HASTY)
    assert drawn.show(toy("gpt2")) == "<0>(0) <0>(0) | <17>(17) <17>(17)"
