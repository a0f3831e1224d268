"""Counted operations: right on products whose count is known, and when a line is straight."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from assay.harness.operations import flops
from assay.harness.tests.support.toys import prompt, toy

whole = st.integers(1, 10**6)


def test_a_product_of_matrices_costs_two_operations_per_term():
    subject = toy("gpt2")
    assert flops.count(subject, lambda: torch.ones(3, 5) @ torch.ones(5, 7)) == 2 * 3 * 5 * 7
    assert flops.count(subject, lambda: torch.ones(3, 5) + 1) == 0


def test_a_pass_costs_what_its_products_cost():
    subject = toy("gpt2")
    n, d, v = 10, subject.hidden, subject.vocabulary
    inner = subject.model.transformer.h[0].mlp.c_fc.weight.shape[1]
    weights = 4 * d * d + 2 * d * inner
    attention = 2 * n * d
    expected = 2 * n * (subject.layers * (weights + attention) + d * v)
    assert flops.count_pass(subject, prompt(subject, n, batch=1)) == expected


def test_a_cached_step_costs_one_token_and_its_look_at_the_past():
    subject = toy("gpt2")
    ids = prompt(subject, 12, batch=1)
    shorter, longer = (flops.count_cached_step(subject, ids[:, :n]) for n in (11, 12))
    assert longer - shorter == 2 * 2 * subject.layers * subject.hidden
    assert longer < flops.count_pass(subject, ids) / 10


@given(whole, st.integers(0, 10**6))
def test_a_straight_line_does_not_bend(first, slope):
    assert flops.bend([first, first + slope, first + 2 * slope]) == 0


@given(st.integers(1, 1000), whole)
def test_a_parabola_bends(step, curvature):
    costs = [curvature * n * n for n in (step, 2 * step, 3 * step)]
    assert flops.bend(costs) == pytest.approx(0.5)
