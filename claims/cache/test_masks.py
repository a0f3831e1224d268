"""Explicit 4-D masks say what a model's own mask says (document 004 and beyond)."""

from __future__ import annotations

from assay.fixtures.prompts import chunkings, lengths, prompts
from assay.harness.checking.laws import law
from assay.harness.models import capabilities
from assay.harness.models.capabilities import caches
from assay.harness.models.subject import masks, positions
from assay.harness.operations import padding

LONGEST = 48
"""Tokens of prompts that are decoded in chunks."""


@law(
    "C6",
    "the causal mask given explicitly is the model's own",
    needs=["causal", "attention-only", "mask-4d"],
    source="004, answer 2; beyond",
    control="a mask that lets every position see the next one",
)
def test_the_causal_mask_given_is_the_model_s_own(subject, draw, check):
    # Past its window a model hides more than a causal mask.
    prompt = draw(prompts(subject, shortest=2, longest=subject.window), "prompt")
    n, how = prompt.length, (subject.dtype, subject.device)
    expected = check.reference(lambda s: s.rows(prompt.ids))
    check.same(expected, subject.rows(prompt.ids, mask=masks.causal(n, *how)))
    check.rejects(expected, lambda: subject.rows(prompt.ids, mask=masks.causal(n, *how, ahead=1)))


@law(
    "C6",
    "the causal mask given beside a cache is the model's own",
    needs=["causal", "attention-only", "mask-4d", "cache"],
    source="004, answer 2; beyond",
    control="a mask that hides the first token from all that follow",
)
def test_the_causal_mask_given_beside_a_cache_is_the_model_s_own(subject, draw, check):
    longest = min(subject.window or LONGEST, LONGEST)
    prompt = draw(prompts(subject, shortest=2, longest=longest), "prompt")
    chunks = draw(chunkings(prompt, subject=subject), "chunks")
    mask = masks.causal(prompt.length, subject.dtype, subject.device)
    blind = mask.clone()
    blind[..., 1:, 0] = mask.min()
    where = None
    if "position-ids" in capabilities.probe(subject):
        where = positions.usual(subject, prompt.length)
    expected = check.reference(lambda s: s.rows(prompt.ids, states=False))
    for explicit, judge in ((mask, check.same), (blind, check.rejects)):
        judge(
            expected,
            caches.decode(subject, prompt.ids, chunks, mask=explicit, positions=where),
        )


@law(
    "C5",
    "a 4-D mask hides padding as a 2-D one does",
    needs=["causal", "attention-only", "mask-4d", "left-padding"],
    source="beyond 004",
    control="a neighbour's row in place of one's own",
)
def test_a_4d_mask_hides_padding_too(subject, draw, check):
    prompt = draw(prompts(subject, shortest=2, longest=subject.window), "prompt")
    batch = padding.ragged(subject, prompt.ids, draw(lengths(prompt), "lengths"))
    mask = masks.padded(batch.mask, subject.dtype)
    rows = subject.rows(batch.ids, mask=mask, positions=batch.positions)
    padding.each_alone(check, prompt.ids, batch, rows)
