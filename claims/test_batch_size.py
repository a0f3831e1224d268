"""Rows of a large batch, as servers run them (beyond the documents)."""

from __future__ import annotations

import pytest
import torch
from hypothesis import strategies as st

from assay.fixtures.prompts import prompts
from assay.harness.checking.laws import law
from assay.harness.models.tolerances import bit_equal

LONGEST = 8
"""Tokens of a prompt: 128 rows of them are a pass over a thousand tokens."""


@law(
    "G9",
    "a row does not depend on how many others are in its batch",
    source="beyond the documents; pytorch#159239, vllm#5898",
    control="the batch's mean added to each row",
)
@pytest.mark.parametrize("rows", [2, 8, 32, 128])
def test_a_row_does_not_depend_on_the_size_of_its_batch(subject, rows, draw, check):
    prompt = draw(prompts(subject, longest=LONGEST, rows=1), "prompt")
    index = draw(st.integers(0, rows - 1), "row")
    # Other tokens in the other rows.
    steps = torch.arange(rows, device=prompt.ids.device)[:, None] - index
    batch = subject.content(prompt.ids + 3 * steps)
    expected = check.reference(lambda s: s.rows(prompt.ids))
    together = subject.rows(batch)
    own = together.map(lambda t: t[index : index + 1])
    check.same(expected, own)
    shares = check.details.setdefault("share of elements whose bits differ", [])
    names = [name for name in own.tensors if name in expected.plain.tensors]
    shares.append(max(bit_equal(own[name], expected.plain[name]) for name in names))
    check.rejects(expected, together.map(lambda t: t[index : index + 1] + t.mean(0, keepdim=True)))
