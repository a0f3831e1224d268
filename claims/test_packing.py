"""Samples packed into one row, as in training without padding (beyond the documents)."""

from __future__ import annotations

import torch
from hypothesis import strategies as st

from assay.fixtures.prompts import prompts
from assay.harness.checking.laws import law
from assay.harness.models import positions


@law(
    "G1",
    "samples packed into one row do not see each other",
    needs=["causal", "packing"],
    source="beyond the documents",
    control="positions that run on over the samples",
)
def test_samples_packed_into_one_row_do_not_see_each_other(subject, draw, check):
    first = draw(prompts(subject, shortest=2, longest=24, rows=1), "first")
    second = draw(prompts(subject, shortest=2, longest=24, rows=1), "second")
    third = subject.content(first.ids[:, : draw(st.integers(2, first.length), "third")] + 5)
    samples = [first.ids, second.ids, third]
    packed = torch.cat(samples, dim=1)
    counted = [positions.usual(subject, ids.shape[1]) for ids in samples]
    rows = subject.rows(packed, positions=torch.cat(counted))
    running = None
    begin = 0
    for ids in samples:
        place = slice(begin, begin + ids.shape[1])
        expected = check.reference(lambda s, ids=ids: s.rows(ids))
        check.same(expected, rows.at(place))
        if begin and check.wants():
            running = running or subject.rows(packed)
            check.rejects(expected, running.at(place))
        begin = place.stop
