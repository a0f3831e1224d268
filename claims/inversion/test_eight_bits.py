"""Whether 8-bit weights change how well blocks are conditioned (document 003, E16)."""

from __future__ import annotations

import functools

import pytest

from assay.claims.inversion.test_inversion import NEEDS, cases_of
from assay.claims.inversion.test_inversion_conditions import conditioned
from assay.harness.checking.findings import Bound, finding
from assay.harness.checking.statistics import median
from assay.harness.models.subject.memo import memo
from assay.harness.operations import int8, variants


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
    slow=True,
)
@pytest.mark.parametrize(
    "quantised",
    [
        pytest.param(int8.llm_int8, id="LLM.int8"),
        pytest.param(functools.partial(variants.quantised, bits=8), id="rounded weights alone"),
    ],
)
def test_eight_bits_do_not_change_the_condition(subject, quantised, draws, sample):
    for row in cases_of(subject, draws).ids.to(subject.device):
        exact, eight, two = (
            of_all_blocks(each, row)
            for each in (subject, quantised(subject), variants.quantised(subject, bits=2))
        )
        sample.add(effect=abs(eight / exact - 1), control=abs(two / exact - 1))


def of_all_blocks(subject, ids):
    """The condition number of the last state's Jacobian; cached, as both claims use it."""
    results, key = conditions(subject), tuple(ids.tolist())
    if key not in results:
        results[key] = conditioned(subject, subject.layers, ids)
    return results[key]


@memo
def conditions(subject):
    """Condition numbers by prompt."""
    return {}
