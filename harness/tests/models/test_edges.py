"""Lengths at which a model changes its ways, and draws that favour them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings

from assay.fixtures.permutations import rearrangements
from assay.fixtures.prompts import (
    Prompt,
    chunk_sizes,
    chunkings,
    endings,
    equal_chunks,
    prompts,
)
from assay.harness.models.subject import edges
from assay.harness.tests.support.toys import toy

SOME = settings(
    max_examples=60,
    database=None,
    derandomize=True,
    deadline=None,
    suppress_health_check=[*HealthCheck],
)


def of_length(n: int, rows: int = 1) -> Prompt:
    return Prompt(torch.zeros(rows, n, dtype=torch.long))


@pytest.mark.parametrize(
    ("model_type", "least"),
    [
        ("mistral", {8}),
        ("gpt_neo", {8}),
        ("phi3", {16}),
        ("mamba", {3}),
        ("mamba2", {3, 8}),
        ("gpt2", set()),
    ],
)
def test_windows_chunks_and_convolutions_are_found_in_the_configuration(model_type, least):
    assert set(edges.steps(toy(model_type))) == least | {64}


def test_lengths_around_a_window_are_in_bounds():
    assert edges.around(toy("mistral"), 2, 64) == [7, 8, 9, 63, 64]
    assert edges.around(toy("mistral"), 8, 40) == [8, 9]


def test_prompts_at_edges_come_to_every_edge_and_elsewhere():
    lengths: list[int] = []

    @settings(SOME, max_examples=100)
    @given(prompts(toy("mistral"), 2, at_edges=True))
    def collect(drawn):
        lengths.append(drawn.length)

    collect()
    assert {7, 8, 9} <= set(lengths)
    assert len(set(lengths) - {7, 8, 9, 63, 64}) > 5


def test_sizes_of_chunks_are_one_two_around_the_window_and_all_but_one():
    assert chunk_sizes(toy("mistral"), of_length(20)) == [1, 2, 7, 8, 9, 19]
    assert chunk_sizes(toy("mistral"), of_length(2)) == [1]


@pytest.mark.parametrize(
    ("n", "size", "chunks"),
    [(20, 9, [2, 9, 9]), (20, 19, [1, 19]), (20, 1, [16, 1, 1, 1, 1]), (2, 1, [1, 1])],
)
def test_equal_chunks_come_after_what_is_left_over(n, size, chunks):
    assert equal_chunks(of_length(n), size) == chunks


def test_chunkings_for_a_model_that_takes_one_token_at_a_time_are_of_one():
    subject = toy("tiny:causal:prophetnet")
    drawn = set()

    @SOME
    @given(chunkings(of_length(20), subject=subject))
    def all_but_the_first_are_of_one(sizes):
        assert sum(sizes) == 20
        assert set(sizes[1:]) <= {1}
        drawn.add(tuple(sizes))

    all_but_the_first_are_of_one()
    assert len(drawn) > 3
    assert (20,) in drawn


def test_chunkings_for_a_model_have_chunks_of_its_sizes_and_sum_to_the_prompt():
    sizes: set[int] = set()

    @SOME
    @given(chunkings(of_length(20), subject=toy("mistral")))
    def collect(chunks):
        assert sum(chunks) == 20
        assert min(chunks) >= 1
        sizes.update(chunks[1:])

    collect()
    assert {1, 2, 7, 8, 9, 19} <= sizes


@SOME
@given(endings(of_length(9)))
def test_endings_leave_a_few_tokens(cut):
    assert 5 <= cut <= 8


@pytest.mark.parametrize(
    "operation", ["reorder_cache", "batch_select_indices", "batch_repeat_interleave"]
)
def test_rows_are_rearranged_as_the_operation_can(operation):
    @SOME
    @given(rearrangements(of_length(4, rows=3), operation))
    def check(rows):
        drawn = rows.tolist()
        assert set(drawn) <= {0, 1, 2}
        if operation == "reorder_cache":
            assert len(drawn) == 3
        elif operation == "batch_select_indices":
            assert drawn == sorted(set(drawn)) != []
        else:
            assert drawn == [0, 0, 1, 1, 2, 2]

    check()
