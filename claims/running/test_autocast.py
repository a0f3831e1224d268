"""Mixed precision, in which models are trained and many are served (beyond the documents)."""

from __future__ import annotations

from assay.fixtures.prompts import prompts
from assay.harness.checking.laws import law
from assay.harness.operations import autocast, variants


@law(
    "G14",
    "under autocast a model is as near to float64 as its copy in bfloat16, and the copy as it",
    needs=["bfloat16"],
    source="beyond the documents",
    control="autocast with the results of matrix products rounded to 8 bits",
    enough=8,
)
def test_autocast_is_as_near_to_float64_as_a_copy_in_bfloat16(subject, draw, check):
    autocast.require(subject)
    check.in_half = True
    cast = variants.in_bfloat16(subject)
    # Short ones: on many processors a product in bfloat16 takes over ten times that in float32.
    prompt = draw(prompts(subject, longest=16, rows=2), "prompt")
    exact = check.reference(lambda s: s.rows(prompt.ids))
    copied, mixed = autocast.references(subject, cast, prompt.ids, exact)
    check.same(copied, mixed.plain, autocast.TOLERANCE)
    check.same(mixed, copied.plain, autocast.WORST_ROW)
    if check.wants():
        with autocast.eight_bits():
            damaged = autocast.rows(subject, prompt.ids)
        check.rejects(copied, damaged, autocast.TOLERANCE)
