"""Rows of a large batch, as servers run them (beyond the documents).

With ``-o bitwise=true`` a row must have the same bits in every batch.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import strategies as st

from assay.fixtures.prompts import prompts
from assay.harness.checking.laws import law
from assay.harness.models.reference.tolerances import one_bit_off, unequal_bits

LONGEST = 8
"""Tokens of a prompt: 128 rows of them are a pass over a thousand tokens."""


@law(
    "G9",
    "a row does not depend on how many others are in its batch",
    source="beyond the documents; pytorch#159239, vllm#5898",
    control="the batch's mean added to each row",
    core=True,
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
    share = unequal_bits(own, expected.plain)
    check.details.setdefault("share of elements whose bits differ", []).append(share)
    if subject.settings.bitwise:
        check.judge(share, 0.0, f"the bits of row {index}: share of elements that differ")
        check.sees_one_bit(unequal_bits(expected.plain.map(one_bit_off), expected.plain))
    mean = together.map(lambda t: t[index : index + 1] + t.mean(0, keepdim=True))
    check.rejects(expected, mean)
