"""What a quantised cache promises of the keys and values that it keeps (document 004)."""

from __future__ import annotations

from fixtures.prompts import chunkings, prompts
from harness import caches, quantised
from harness.laws import law

LONGEST = 48
"""A prompt of so many tokens has thousands of keys and values."""

BROKEN = (quantised.rescaled, quantised.enlarged, quantised.stale)


@law(
    "C2",
    "a quantised cache keeps its first scale and errs by rounding and clipping at that scale",
    needs=["causal", "cache"],
    source="004, answers 1 and 2; transformers, Fp8QuantizedLayer",
    control="a scale taken anew with every update; one layer's scale times 1.01; a stale entry; "
    "each of them",
)
def test_a_quantised_cache_keeps_its_first_scale(subject, draw, check):
    caches.make(subject, "quantised", 1, 1)  # a cache that is not offered is not drawn for
    prompt = draw(prompts(subject, 2, LONGEST, rows=3), "prompt")
    chunks = draw(chunkings(prompt, first_alone=True, subject=subject), "chunks")
    layers = quantised.histories(subject, prompt.ids, chunks)
    for number, history in enumerate(layers):
        check.judge(history.excess, 1.0, f"keys and values, number {number}")
    # Rejected only where each of the broken caches is.
    check.judge_control(min(layers[-1].changed(each).excess for each in BROKEN), 1.0)
