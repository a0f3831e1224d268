"""Effects of order on attention without positions (document 001)."""

from __future__ import annotations

import torch

from assay.harness.checking import measures
from assay.harness.checking.findings import Bound, finding
from assay.harness.checking.statistics import share
from assay.harness.models.capabilities import Missing
from assay.harness.models.subject import masks, positions
from assay.harness.operations.heads import Head

PLAINLY = 100
"""Times the tolerance of laws: two rows that differ by this much count as different."""

TOKENS = 5
"""Rows of a head's input."""


@finding(
    "B2",
    "equivariant is not invariant: the last row changes with the last token",
    source="001, question",
    bound=Bound(share, at_least=0.99),
    control="an order that leaves the last token in its place",
    draws=1024,
    block=256,
    toy=True,
)
def test_equivariant_is_not_invariant(subject, draws, sample):
    for name, last in {"effect": "moved", "control": "fixed"}.items():
        orders = draws.orders(TOKENS, last)
        sample.add(**{name: [changes(subject, *draw) for draw in zip(draws, orders, strict=True)]})


@finding(
    "B5",
    "two causal layers see order without positions",
    needs=["causal", "order-blind", "mask-4d", "blocks"],
    source="001, and beyond: Haviv et al. 2022, Kazemnejad et al. 2023",
    bound=Bound(share, at_least=0.95),
    control="one layer",
    draws=128,
)
def test_two_causal_layers_see_order_without_positions(subject, draws, sample):
    if subject.layers < 2:
        raise Missing(f"the model has {subject.layers} block, two are needed")
    one, other, hit = three_tokens(subject, draws).T
    straight, crossed = torch.stack([one, other, hit], 1), torch.stack([other, one, hit], 1)
    for name, depth in {"effect": 2, "control": 1}.items():
        rows = [last_row(subject, depth, ids) for ids in (straight, crossed)]
        distances = measures.apart(*rows)
        sample.add(**{name: distances > measures.far_distance(subject, PLAINLY)})
        sample.add(**{f"relative distance, {depth} layers": distances})


def changes(subject, number, order):
    """Whether ``order`` changes the last row of a head drawn from the seed ``number``."""
    head = Head(16, 8, 2, "eager", number).to(subject.device, subject.dtype)
    inputs = head.inputs(len(order), batch=1)
    usual, moved = head(inputs)[:, -1], head(inputs[:, order])[:, -1]
    return bool(measures.apart(moved, usual) > measures.far_distance(subject, PLAINLY))


def three_tokens(subject, draws):
    """Three different tokens for each draw, as 'A B hit': ids [draws, 3]."""
    if subject.vocabulary < 3:
        raise Missing(f"a vocabulary of {subject.vocabulary} has no three tokens to draw")
    first = draws.integers(0, subject.vocabulary, "first")
    steps = draws.integers(1, subject.vocabulary // 3 + 1, "step")
    ids = first[:, None] + steps[:, None] * torch.arange(3)
    return subject.content(ids.to(subject.device))


def last_row(subject, depth, ids):
    """The last row after ``depth`` causal blocks, all tokens at one position: [draws, d]."""
    n = ids.shape[1]
    together = positions.usual(subject, n)[:1].expand(n)
    mask = masks.causal(n, subject.dtype, subject.device)
    return subject.block_output(depth, ids, positions=together, mask=mask)[:, -1]
