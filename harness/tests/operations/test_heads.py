"""The plain head against the formula written out, and against torch's own."""

from __future__ import annotations

import pytest
import torch

from assay.harness.operations.heads import IMPLEMENTATIONS, Head

SHAPES = [(1, 1), (1, 8), (3, 4)]
"""Heads and their size."""


def by_the_formula(head: Head, x: torch.Tensor, causal: bool) -> torch.Tensor:
    """softmax(q·k / √size) v, token by token and head by head."""
    out = torch.zeros_like(x)
    for row in range(x.shape[0]):
        for i in range(x.shape[1]):
            positions = range(i + 1 if causal else x.shape[1])
            attended = []
            for h in range(head.heads):
                columns = slice(h * head.size, (h + 1) * head.size)
                q = x[row, i] @ head.query[:, columns]
                keys = [x[row, j] @ head.key[:, columns] for j in positions]
                values = [x[row, j] @ head.value[:, columns] for j in positions]
                weights = torch.stack([q @ k / head.size**0.5 for k in keys]).exp()
                mixed = sum(w * v for w, v in zip(weights, values, strict=True)) / weights.sum()
                attended.append(mixed)
            out[row, i] = torch.cat(attended) @ head.out
    return out


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("heads", "size"), SHAPES)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_every_implementation_is_the_formula(implementation, heads, size, causal):
    head = Head(16, size, heads, implementation, seed=3)
    x = head.inputs(5)
    expected = by_the_formula(head.double(), x.double(), causal)
    assert torch.allclose(head.float()(x, causal).double(), expected, atol=1e-5)
    assert not torch.allclose(head(x, not causal).double(), expected, atol=1e-3)


def test_heads_repeat_by_seed_and_differ_between_seeds():
    one, same, other = (Head(16, 4, 2, "eager", seed) for seed in (1, 1, 2))
    assert torch.equal(one.query, same.query)
    assert not torch.equal(one.query, other.query)
    assert torch.equal(one.inputs(4), same.inputs(4))


def test_the_reference_is_the_same_head_written_out_in_float64():
    head = Head(16, 4, 2, "sdpa", seed=5)
    x = head.inputs(4)
    reference = head.reference(x)
    assert reference.oracle["head"].dtype == torch.float64
    assert torch.equal(reference.plain["head"], head(x))
    assert torch.allclose(
        reference.oracle["head"], by_the_formula(head.double(), x.double(), False)
    )
    assert head.implementation == "sdpa"
