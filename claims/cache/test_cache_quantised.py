"""What a quantised cache guarantees for its keys and values (document 004)."""

from __future__ import annotations

from assay.fixtures.permutations import rearrangements
from assay.fixtures.prompts import chunkings, endings, prompts
from assay.harness.checking.laws import law
from assay.harness.models.capabilities import cache_histories, caches
from assay.harness.operations import cache_operations
from assay.harness.results.errors import Missing

LONGEST = 48
"""A prompt of this many tokens has thousands of keys and values."""

BROKEN = {
    "rescaled": cache_histories.rescaled,
    "enlarged": cache_histories.enlarged,
    "stale": cache_histories.stale,
}


@law(
    "C2",
    "a quantised cache keeps its first scale and errs by rounding and clipping at that scale",
    needs=["causal", "cache"],
    source="004, answers 1 and 2; transformers, Fp8QuantizedLayer",
    control={
        "rescaled": "the scale is computed again at every update",
        "enlarged": "one layer's scale times 1.01",
        "stale": "the newest entry is that of the token before",
    },
)
def test_a_quantised_cache_keeps_its_first_scale(subject, draw, check):
    caches.make(subject, "quantised", 1, 1)  # skip a kind of cache that the model lacks
    prompt = draw(prompts(subject, 2, LONGEST, rows=3), "prompt")
    chunks = draw(chunkings(prompt, first_alone=True, subject=subject), "chunks")
    if not (layers := cache_histories.histories(subject, prompt.ids, chunks)):
        raise Missing("cache: there are no layers that keep keys and values")
    for number, history in enumerate(layers):
        check.judge(history.excess, 1.0, f"keys and values, number {number}")
    check.sees(
        lambda size: (layers[-1].with_leak(size), 1.0), cache_histories.must_see(subject.dtype)
    )
    for name, change in BROKEN.items():
        check.judge_control(layers[-1].changed(change).excess, 1.0, name)


@law(
    "C2",
    "a quantised cache whose beams are reordered is that of the beams reordered",
    needs=["causal", "cache"],
    source="004, answer 2; transformers#48700",
    control="a neighbour's row in place of one's own",
)
def test_a_quantised_cache_whose_beams_are_reordered_is_theirs(subject, draw, check):
    if not subject.layers:
        raise Missing("a model without layers keeps no states")
    prompt = draw(prompts(subject, 2, LONGEST, rows=3, least_rows=2), "prompt")
    cut = draw(endings(prompt), "cut")
    order = draw(rearrangements(prompt, "reorder_cache"), "rows")
    cache = cache_operations.fill_cache(subject, prompt.ids[:, :cut], caches.UNROUNDED)
    ids, steps = prompt.ids, []
    for at in range(cut, prompt.length):  # reordered before each token, as in a beam search
        cache_operations.rearrange(cache, "reorder_cache", order)
        ids = ids[order]
        one = caches.decode(subject, ids[:, at : at + 1], [1], cache=cache)
        expected = check.reference(lambda s, to=ids[:, : at + 1]: s.rows(to, states=False).last)
        check.same(expected, one)
        steps.append((expected, one))
    check.rejects(steps[0][0], steps[0][1].map(lambda t: t.roll(1, 0)))
