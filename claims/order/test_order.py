"""Attention without positions: equivariant, and in one layer blind to order (document 001)."""

from __future__ import annotations

import functools

import pytest
import torch
from hypothesis import strategies as st

from assay.fixtures.permutations import orders
from assay.fixtures.prompts import prompts
from assay.harness.checking.laws import law
from assay.harness.models.capabilities.probing import agree
from assay.harness.models.subject import masks, positions
from assay.harness.models.subject.rows import Rows
from assay.harness.operations.heads import IMPLEMENTATIONS, Head


@law(
    "B1",
    "an unmasked attention head is permutation-equivariant",
    source="001, question and answer 1",
    control="a causal mask",
    toy=True,
)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_an_unmasked_head_is_equivariant(subject, implementation, draw, check):
    size = draw(st.integers(1, 64), "head size")
    heads = draw(st.sampled_from([1, 2, 4]), "heads")
    seed = draw(st.integers(0, 2**16), "seed")
    head = Head(16, size, heads, implementation, seed).to(subject.device, subject.dtype)
    inputs = head.inputs(draw(st.integers(2, 12), "tokens"))
    order = draw(orders(inputs.shape[1]), "order")
    expected = head.reference(inputs).at(order)
    check.same(expected, head.rows(inputs[:, order]))
    check.rejects(expected, lambda: head.rows(inputs[:, order], causal=True))


@law(
    "B3",
    "the pooled output of an unmasked head is invariant",
    source="001, question",
    control="a mean in which later rows weigh more",
    toy=True,
)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_the_pooled_output_is_invariant(subject, implementation, draw, check):
    size = draw(st.integers(1, 64), "head size")
    seed = draw(st.integers(0, 2**16), "seed")
    head = Head(16, size, 2, implementation, seed).to(subject.device, subject.dtype)
    inputs = head.inputs(draw(st.integers(2, 12), "tokens"))
    order = draw(orders(inputs.shape[1]), "order")
    moved = head.rows(inputs[:, order])
    weights = torch.linspace(0.5, 1.5, inputs.shape[1], device=subject.device)[:, None]
    expected = head.reference(inputs).map(Rows.mean)
    check.same(expected, moved.mean())
    check.rejects(expected, moved.map(lambda t: t * weights.to(t)).mean())


@law(
    "B4",
    "in one layer without positions, the order of what precedes the last token is invisible",
    needs=["order-blind", "mask-4d", "blocks"],
    source="001, answer 3",
    control="positions added; in a layer that has none, another token last",
)
def test_one_layer_without_positions_cannot_see_order(subject, draw, check):
    prompt = draw(prompts(subject, shortest=3, longest=subject.window), "prompt")
    order = draw(orders(prompt.length, last_fixed=True), "order")
    usual = positions.usual(subject, prompt.length)
    mask = masks.causal(prompt.length, subject.dtype, subject.device)

    def last_row(s, ids, position_ids):
        return Rows({"state 1": s.block_output(1, ids, positions=position_ids, mask=mask)}).last

    together = usual[:1].expand_as(usual)
    expected = check.reference(lambda s: last_row(s, prompt.ids, together))
    check.same(expected, last_row(subject, prompt.ids[:, order], together))
    if not agree(subject, last_row(subject, prompt.ids, usual), expected.plain):
        there = functools.partial(last_row, subject, prompt.ids[:, order], usual)
        check.rejects(expected, there)
    else:
        other = functools.partial(last_row, subject, prompt.ids.roll(1, 1), together)
        check.rejects(expected, other)


@law(
    "B4",
    "without positions and without a causal mask, order is invisible at any depth",
    needs=["order-blind", "mask-4d", "blocks"],
    source="001, question and answer 2",
    control="positions added",
)
def test_without_mask_and_positions_order_is_invisible_at_any_depth(subject, draw, check):
    prompt = draw(prompts(subject, shortest=3, longest=subject.window), "prompt")
    order = draw(orders(prompt.length, last_fixed=True), "order")
    depth = draw(st.integers(1, subject.layers), "depth")
    usual = positions.usual(subject, prompt.length)
    mask = masks.full(prompt.length, subject.dtype, subject.device)

    def last_row(s, ids, position_ids):
        return Rows(
            {f"state {depth}": s.block_output(depth, ids, positions=position_ids, mask=mask)}
        ).last

    together = usual[:1].expand_as(usual)
    expected = check.reference(lambda s: last_row(s, prompt.ids, together))
    check.same(expected, last_row(subject, prompt.ids[:, order], together))
    check.rejects(expected, lambda: last_row(subject, prompt.ids[:, order], usual))
