"""What a cache and a mask do to the past."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import assay
from example_claims import faults as faults

SOURCE = "Assay's example, after its own C2 and C7"
TOKENS = 12


def decoded(subject: assay.Subject, ids: Tensor, first: int, past: Tensor) -> assay.Rows:
    """The rows of ``ids`` [batch, n] from position ``first`` on, on a cache of ``past``."""
    output = subject(past, keep=True, states=False)
    parts = []
    for place in range(first, ids.shape[1]):
        token = ids[:, place : place + 1]
        output = subject(token, cache=output.cache, keep=True, states=False)
        parts.append(output.rows)
    return assay.Rows.along_positions(parts)


@assay.law(
    "EX5",
    "decoding with a cache equals one pass over everything",
    needs=["causal", "cache"],
    source=SOURCE,
    control="a cache of the prompt moved one position to the right",
)
@pytest.mark.parametrize("steps", [pytest.param(1, id="one step"), pytest.param(3, id="three")])
def test_cached_decoding(
    subject: assay.Subject, steps: int, draw: assay.Draw, check: assay.Check
) -> None:
    prompt = draw(assay.prompts(subject, shortest=steps + 1, longest=32), "prompt")
    first = prompt.length - steps
    past = prompt.ids[:, :first]
    expected = check.reference(lambda s: s.rows(prompt.ids, states=False)).at(slice(first, None))
    check.same(expected, decoded(subject, prompt.ids, first, past))
    moved = torch.cat([prompt.ids[:, -1:], past[:, :-1]], dim=1)
    check.rejects(expected, lambda: decoded(subject, prompt.ids, first, moved))


@assay.finding(
    "EX6",
    "without the causal mask, the past gets other states",
    needs=["causal", "mask-4d"],
    source=SOURCE,
    bound=assay.Bound(assay.share, at_least=0.95),
    control="the causal mask, given explicitly",
    draws=128,
)
def test_the_past_without_a_mask(
    subject: assay.Subject, draws: assay.Draws, sample: assay.Sample
) -> None:
    every = [draws.integers(0, subject.vocabulary, f"token {i}") for i in range(TOKENS)]
    ids = subject.content(torch.stack(every, dim=1).to(subject.device))
    usual = subject.rows(ids)
    full = torch.zeros(1, 1, TOKENS, TOKENS, dtype=subject.dtype, device=subject.device)
    lowest = torch.full_like(full, torch.finfo(subject.dtype).min)
    for name, mask in {"effect": full, "control": lowest.triu(1)}.items():
        past = subject.rows(ids, mask=mask)[f"state {subject.layers}"][:, :-1]
        expected = usual[f"state {subject.layers}"][:, :-1]
        change = (past - expected).flatten(1).norm(dim=1) / expected.flatten(1).norm(dim=1)
        sample.add(**{name: change > 0.01})
