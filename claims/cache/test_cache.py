"""Cached decoding: the past is computed once and never again (document 004)."""

from __future__ import annotations

import functools

import pytest
from hypothesis import strategies as st

from assay.fixtures.prompts import chunk_sizes, chunkings, cuts, equal_chunks, prompts
from assay.harness.checking.laws import law
from assay.harness.checking.reference import Reference
from assay.harness.models.capabilities import caches
from assay.harness.models.reference.tolerances import QUANTISED, bit_equal, one_bit_off
from assay.harness.models.subject import encoders

LONGEST = 96
"""Each chunk of a prompt is a forward pass: longer prompts cost more than they find."""


@law(
    "C2",
    "cached decoding equals recomputation",
    needs=["causal", "cache"],
    source="004, answers 1 and 2",
    control="a cache shifted by one: filled with the prompt moved one place to the right",
    core="default",
)
@pytest.mark.parametrize("kind", caches.KINDS)
def test_cached_decoding_equals_recomputation(subject, kind, draw, check):
    caches.make(subject, kind, 1, 1)  # skip a kind of cache that the model lacks
    far = 2 * (kind == "default")  # the cache of every user
    prompt = draw(prompts(subject, 2, LONGEST, rows=3, at_edges=True, far=far), "prompt")
    chunks = draw(chunkings(prompt, subject=subject), "chunks")
    if kind == "sliding":
        window, read = subject.window or 1, prompt.length - chunks[-1]  # before the last chunk
        check.reaches(f"a window of {window} tokens that slides", read >= window)
    tolerance = None
    expected = check.reference(lambda s: s.rows(prompt.ids, states=False))
    if kind == "quantised":
        # An error of the exact cache must not count as rounding.
        check.same(expected, caches.decode(subject, prompt.ids, chunks))
        # Rounding has a cost by design, and its scale stays that of the first chunk.
        ideal = caches.decode(subject, prompt.ids, chunks, caches.IDEAL)
        expected, tolerance = Reference(ideal, expected.oracle), QUANTISED
    check.same(expected, caches.decode(subject, prompt.ids, chunks, kind), tolerance)
    later = slice(chunks[0], None)
    if len(chunks) > 1 and check.wants():
        stale = caches.decode(subject, prompt.ids, chunks, kind, stale=True)
        check.rejects(expected.at(later), stale.at(later), tolerance)


@law(
    "C2",
    "cached decoding equals recomputation, whatever the size of the chunks",
    needs=["causal", "cache", "chunks-beside-cache"],
    source="004, answers 1 and 2",
    control="a cache shifted by one: filled with the prompt moved one place to the right",
    enough=8,
)
def test_chunks_of_any_size_give_the_same(subject, draw, check):
    prompt = draw(prompts(subject, 2, LONGEST, rows=2, at_edges=True), "prompt")
    expected = check.reference(lambda s: s.rows(prompt.ids, states=False))
    for size in chunk_sizes(subject, prompt):
        chunks = draw(st.just(equal_chunks(prompt, size)), "chunks")
        check.same(expected, caches.decode(subject, prompt.ids, chunks))
        stale = functools.partial(caches.decode, subject, prompt.ids, chunks, stale=True)
        check.rejects(expected, stale)


@law(
    "C2",
    "a cache of fixed size equals recomputation, however much room it has",
    needs=["causal", "cache"],
    source="004, answers 1 and 2",
    control="a cache shifted by one: filled with the prompt moved one place to the right",
)
@pytest.mark.parametrize("spare", [1, LONGEST])
def test_the_room_of_a_static_cache_changes_nothing(subject, spare, draw, check):
    caches.make(subject, "static", 1, 1)
    prompt = draw(prompts(subject, 2, LONGEST, rows=2, at_edges=True), "prompt")
    chunks = draw(chunkings(prompt, subject=subject), "chunks")
    decode = functools.partial(caches.decode, subject, prompt.ids, chunks, "static", spare=spare)
    expected = check.reference(lambda s: s.rows(prompt.ids, states=False))
    check.same(expected, decode())
    later = slice(chunks[0], None)
    if len(chunks) > 1:
        check.rejects(expected.at(later), lambda: decode(stale=True).at(later))


@law(
    "C3",
    "cached keys and values are never rewritten",
    needs=["kv-cache"],
    source="004, question and answer 1",
    control="the entries of the same prompt moved by one place",
)
@pytest.mark.parametrize("kind", ["default", "dynamic", "sliding", "static"])
def test_cached_entries_are_never_rewritten(subject, kind, draw, check):
    caches.make(subject, kind, 1, 1)
    prompt = draw(prompts(subject, 2, LONGEST, rows=3, at_edges=True), "prompt")
    cut = draw(cuts(prompt), "cut")
    before, after = caches.grown(subject, prompt.ids, cut, kind)
    check.judge(max(bit_equal(a, b) for a, b in zip(before, after, strict=True)), 0.0, "the past")
    moved = max(bit_equal(a, b.roll(1, dims=-2)) for a, b in zip(before, after, strict=True))
    check.judge_control(moved, 0.0)
    check.sees_one_bit(bit_equal(before[0], one_bit_off(after[0])))


@law(
    "C2",
    "attention to the encoder through a cache is attention to the encoder",
    needs=["encoder", "cache"],
    source="004, answers 1 and 2",
    control="a neighbour's prompt in the encoder",
)
def test_attention_to_the_encoder_is_cached(subject, draw, check):
    prompt = draw(prompts(subject, shortest=2, longest=32, least_rows=2), "prompt")
    chunks = draw(chunkings(prompt, subject=subject), "chunks")
    expected = check.reference(
        lambda s: s.rows(prompt.ids, states=False, **encoders.beside(s, prompt.ids))
    )
    beside = encoders.beside(subject, prompt.ids)
    check.same(expected, caches.decode(subject, prompt.ids, chunks, **beside))
    other = encoders.beside(subject, prompt.ids.roll(1, 0))
    check.rejects(expected, lambda: caches.decode(subject, prompt.ids, chunks, **other))
