"""Numbers stay numbers (beyond the documents)."""

from __future__ import annotations

from assay.fixtures.prompts import prompts
from assay.harness.checking.laws import law
from assay.harness.models.reference import finiteness


@law(
    "C13",
    "finite inputs give finite outputs",
    source="beyond the documents",
    control="one element of the last row replaced by NaN, or by infinity",
    core=True,
)
def test_finite_inputs_give_finite_outputs(subject, draw, check):
    alone = finiteness.of_vocabulary(subject)
    check.judge(float(bool(alone)), 0.0, alone)
    check.details["tokens run alone"] = finiteness.tokens_alone(subject)
    ids = draw(prompts(subject, at_edges=True), "prompt").ids
    rows = finiteness.outputs(subject, ids)
    index = finiteness.first(rows)
    where = "" if index is None else finiteness.in_words(subject, ids, index)
    check.judge(float(index is not None), 0.0, where)
    for spoiled in finiteness.spoiled(rows):
        share = float(finiteness.first(spoiled) is not None)
        check.judge_control(share, 0.0)
        check.sees_one("element that is not finite", share)
