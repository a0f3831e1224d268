"""Models whose weights are quantised, against the numbers that these stand for (beyond the
documents).
"""

from __future__ import annotations

import pytest

from assay.fixtures.prompts import prompts
from assay.harness.checking.laws import law
from assay.harness.checking.work import Work
from assay.harness.operations import quantisation

SOURCE = "beyond the documents; LLM.int8 (arXiv 2208.07339), QLoRA (arXiv 2305.14314)"

WEIGHTS = [quantisation.OWN, quantisation.EIGHT, quantisation.FOUR]


@law(
    "G11",
    "a quantised model computes with the weights that its integers stand for",
    source=SOURCE,
    control="a scale of each weight times 1.01; in 16 bits half of the scales doubled",
    enough=6,
    work=Work.COPIES,
)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_a_quantised_model_computes_with_its_dequantised_weights(subject, weights, draw, check):
    quantised = quantisation.of(subject, weights)
    prompt = draw(prompts(subject), "prompt")
    expected = quantisation.reference(quantised, prompt.ids)
    allowed = quantisation.tolerance(quantised)
    quantisation.require_judgeable(quantised, expected)
    check.same(expected, quantised.rows(prompt.ids), allowed)
    dense, packed = quantisation.dense(quantised), quantisation.packed(quantised)
    with quantisation.rescaled(dense, packed, quantisation.factor(quantised)):
        check.rejects(expected, dense.rows(prompt.ids), allowed)


@law(
    "G11",
    "quantised weights are loaded as they were saved",
    source=SOURCE,
    control="the scale of one block of each weight times 1.01",
    enough=1,
    work=Work.COPIES,
)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_quantised_weights_are_loaded_as_they_were_saved(subject, weights, draw, check):
    quantised = quantisation.unused(subject, weights)
    ours, packed = quantisation.dense(quantised), quantisation.packed(quantised)
    with quantisation.saved_and_loaded(quantised) as loaded:
        check.judge(len(packed) - len(quantisation.packed(loaded)), 0.0, "quantised weights")
        theirs = quantisation.dense(loaded)
    check.judge(quantisation.share_that_differs(ours, theirs), 0.0, "the dequantised weights")
    check.sees_one_bit(quantisation.share_that_differs(ours, theirs, packed[0]))
    with quantisation.rescaled(theirs, packed, quantisation.SLIGHTLY):
        check.judge_control(quantisation.share_that_differs(ours, theirs), 0.0)
