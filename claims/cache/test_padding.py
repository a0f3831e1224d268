"""Padding and batch mates change nothing (document 004 and beyond)."""

from __future__ import annotations

import functools
from operator import itemgetter

import pytest
from hypothesis import strategies as st

from assay.fixtures.prompts import chunkings, lengths, prompts
from assay.harness.checking.laws import law
from assay.harness.models.capabilities import caches
from assay.harness.models.subject import Subject, encoders
from assay.harness.operations import padding

NEIGHBOUR = "a neighbour's row in place of one's own"


@law(
    "C5",
    "left padding and batch mates change nothing",
    needs=["padding", "fixed-sight"],
    source="beyond 004",
    control=NEIGHBOUR,
    whole=True,
)
def test_padding_and_batch_mates_change_nothing(subject, draw, check):
    prompt = draw(prompts(subject, shortest=2, at_edges=True, far=2), "prompt")
    batch = padding.ragged(subject, prompt.ids, draw(lengths(prompt), "lengths"))
    rows = subject.rows(batch.ids, mask=batch.mask, positions=batch.positions)
    padding.each_alone(check, prompt.ids, batch, rows)


@law(
    "C5",
    "padding changes nothing in a batch of one row",
    needs=["padding", "fixed-sight"],
    source="beyond 004; transformers#46773",
    control="the rows of one position before",
)
def test_padding_changes_nothing_in_a_batch_of_one_row(subject, draw, check):
    prompt = draw(prompts(subject, shortest=2, rows=1), "prompt")
    size = draw(st.integers(min(subject.shortest, prompt.length - 1), prompt.length - 1), "length")
    batch = padding.ragged(subject, prompt.ids, [size])
    rows = subject.rows(batch.ids, mask=batch.mask, positions=batch.positions)
    expected = check.reference(lambda s: s.rows(prompt.ids[:, -size:]))
    check.same(expected, batch.content(rows, 0))
    check.rejects(expected, batch.content(rows.map(lambda t: t.roll(1, 1)), 0))


@law(
    "C5",
    "batch mates of the same length change nothing",
    source="beyond 004",
    control=NEIGHBOUR,
    enough=12,
)
def test_batch_mates_change_nothing(subject, draw, check):
    prompt = draw(prompts(subject, rows=3, least_rows=2), "prompt")
    rows = subject.rows(prompt.ids)
    for row in range(len(prompt.ids)):
        expected = check.reference(functools.partial(Subject.rows, ids=prompt.ids[row : row + 1]))
        check.same(expected, rows.map(lambda t, row=row: t[row : row + 1]))
        check.rejects(expected, rows.map(lambda t, row=row: t.roll(1, 0)[row : row + 1]))


@law(
    "C5",
    "left padding changes nothing where the mask alone tells of it",
    needs=["causal", "padding-by-mask", "position-ids"],
    source="beyond 004",
    control=NEIGHBOUR,
)
def test_the_mask_alone_tells_of_left_padding(subject, draw, check):
    prompt = draw(prompts(subject, shortest=2, at_edges=True), "prompt")
    batch = padding.ragged(subject, prompt.ids, draw(lengths(prompt), "lengths"), explicit=False)
    padding.each_alone(check, prompt.ids, batch, subject.rows(batch.ids, mask=batch.mask))


@law(
    "C5",
    "what stands before padding on the right does not see it",
    needs=["causal", "padding", "fixed-sight"],
    source="beyond 004",
    control=NEIGHBOUR,
)
def test_what_stands_before_the_padding_does_not_see_it(subject, draw, check):
    prompt = draw(prompts(subject, shortest=2, at_edges=True), "prompt")
    batch = padding.ragged(subject, prompt.ids, draw(lengths(prompt), "lengths"), left=False)
    padding.each_alone(check, prompt.ids, batch, subject.rows(batch.ids, mask=batch.mask))


@law(
    "C5",
    "a left-padded batch is decoded with a cache as each prompt alone",
    needs=["causal", "cache", "left-padding"],
    source="beyond 004",
    control=NEIGHBOUR,
)
@pytest.mark.parametrize("first", ["prefill", "chunks"])
@pytest.mark.parametrize("kind", ["default", "static"])
def test_a_padded_batch_is_decoded_as_each_prompt_alone(subject, kind, first, draw, check):
    padding.require_mask_of_past(subject, kind)
    prompt = draw(prompts(subject, shortest=2, longest=48, rows=3, at_edges=True), "prompt")
    sizes = draw(lengths(prompt), "lengths")
    if first == "chunks":
        chunks = draw(chunkings(prompt, subject=subject), "chunks")
    else:
        rest = draw(st.integers(1, min(4, prompt.length - 1)), "tokens after the prefill")
        chunks = [prompt.length - rest] + [1] * rest
        sizes = [max(size, rest + 1) for size in sizes]  # no prompt is empty
    batch = padding.ragged(subject, prompt.ids, sizes)
    rows = caches.decode(
        subject, batch.ids, chunks, kind, mask=batch.mask, positions=batch.positions
    )
    padding.each_alone(check, prompt.ids, batch, rows, states=False)


@law(
    "C5",
    "padding of the encoder's prompt changes nothing in the decoder",
    needs=["encoder", "padding"],
    source="beyond 004",
    control=NEIGHBOUR,
)
def test_padding_of_the_encoder_s_prompt_changes_nothing(subject, draw, check):
    prompt = draw(prompts(subject, shortest=2, longest=32, rows=3), "encoder's prompt")
    batch = padding.ragged(subject, prompt.ids, draw(lengths(prompt), "lengths"), left=False)
    chunks = draw(chunkings(prompt, subject=subject), "chunks")
    decoder_ids = subject.content(prompt.ids.flip(1) + 1)
    rows = caches.decode(
        subject, decoder_ids, chunks, **encoders.arguments(subject, batch.ids, batch.mask)
    )
    for row, size in enumerate(batch.lengths):
        own = batch.ids[row : row + 1, :size]
        expected = check.reference(
            lambda s, own=own, row=row: s.rows(
                decoder_ids[row : row + 1], states=False, **encoders.arguments(s, own)
            )
        )
        its = itemgetter(slice(row, row + 1))
        check.same(expected, rows.map(its))
        if prompt.rows > 1:
            check.rejects(expected, rows.map(lambda t: t.roll(1, 0)).map(its))
