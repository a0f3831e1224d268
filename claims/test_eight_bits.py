"""Whether 8-bit weights change how well blocks are conditioned (document 003, E16)."""

from __future__ import annotations

import functools

import pytest

from claims.test_inversion import NEEDS, cases_of
from claims.test_inversion_conditions import conditioned
from harness import int8, twins
from harness.findings import Bound, finding
from harness.statistics import median


@finding(
    "E16",
    "8-bit weights change how well blocks are conditioned by less than a quarter",
    needs=["trained", *NEEDS],
    source="003, 'quantization is not in this case responsible', by LLM.int8() of bitsandbytes "
    "(arXiv 2208.07339)",
    bound=Bound(median, below=0.25),
    control="2-bit weights",
    draws=8,
    costly=True,
)
@pytest.mark.parametrize(
    "quantised",
    [
        pytest.param(int8.llm_int8, id="LLM.int8"),
        pytest.param(functools.partial(twins.quantised, bits=8), id="rounded weights alone"),
    ],
)
def test_eight_bits_do_not_change_the_condition(subject, quantised, draws, sample):
    ids, depth = cases_of(subject, draws).ids.to(subject.device), subject.layers
    for row in ids:
        exact, eight, two = (
            conditioned(each, depth, row)
            for each in (subject, quantised(subject), twins.quantised(subject, bits=2))
        )
        sample.add(effect=abs(eight / exact - 1), control=abs(two / exact - 1))
