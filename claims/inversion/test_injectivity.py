"""When the last state does not determine the prompt (a counterexample to arXiv 2510.15511)."""

from __future__ import annotations

from hypothesis import strategies as st

from assay.fixtures.prompts import LONGEST, prompts
from assay.harness.checking.laws import law
from assay.harness.checking.reference import Reference
from assay.harness.models import capabilities
from assay.harness.models.capabilities import Missing
from assay.harness.models.reference import precision
from assay.harness.models.reference.float64 import reference_of
from assay.harness.models.reference.tolerances import TOLERANCES


@law(
    "E21",
    "without absolute positions, a token and its repetitions have the same last state",
    needs=["causal", "repeatable"],
    source="counterexample to arXiv 2510.15511",
    control="the same repetitions after another first token",
)
def test_a_token_and_its_repetitions_have_the_same_last_state(subject, draw, check):
    for one, why in {
        "learned-positions": "absolute positions tell repetitions apart",
        "absolute-positions": "absolute positions tell repetitions apart",
        "recurrence": "a recurrence counts its tokens",
    }.items():
        if one in capabilities.probe(subject):
            raise Missing(why)
    capabilities.require(subject, "whole-attention")
    ids = draw(prompts(subject, longest=1), "token").ids
    longest = min(64, subject.context or LONGEST)
    times = draw(st.integers(2, longest), "times")
    reference = reference_of(subject)
    exact = reference.rows(ids)
    expected = Reference(exact, exact)
    tolerance = TOLERANCES[precision.working(reference)]
    repeated = ids.repeat(1, times)
    after_another = repeated.clone()
    after_another[:, :1] = subject.content(ids + 1)
    check.same(expected, reference.rows(repeated).last, tolerance)
    check.rejects(expected, lambda: reference.rows(after_another).last, tolerance)
