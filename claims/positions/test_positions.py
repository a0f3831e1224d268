"""Permuting positions, tokens and mask (documents 000 and 001)."""

from __future__ import annotations

import functools

import pytest
from hypothesis import strategies as st

from assay.fixtures.permutations import orders
from assay.fixtures.prompts import chunkings, prompts
from assay.harness.checking.controls import Damage
from assay.harness.checking.laws import law
from assay.harness.models import capabilities
from assay.harness.models.capabilities import caches
from assay.harness.models.subject import masks, meant, positions
from assay.harness.operations.position_rows import rows_moved

FAR = 512
"""Largest shift of positions: beyond it, float32 rounds rotary angles."""


@law(
    "A5",
    "tokens, positions and the causal mask permuted alike restore the output",
    needs=["causal", "attention-only", "positions-alone", "mask-4d"],
    source="000, question and solution",
    control="the mask left as it was",
)
def test_the_mask_must_be_permuted_too(subject, draw, check):
    prompt = draw(prompts(subject, shortest=2, longest=subject.window), "prompt")
    order = draw(orders(prompt.length), "order")
    moved = {
        "ids": prompt.ids[:, order],
        "positions": positions.usual(subject, prompt.length)[order],
    }
    mask = masks.causal(prompt.length, subject.dtype, subject.device)
    expected = check.reference(lambda s: s.rows(prompt.ids)).at(order)
    check.same(expected, subject.rows(**moved, mask=masks.conjugated(mask, order)))
    check.rejects(expected, lambda: subject.rows(**moved, mask=mask))


@law(
    "A6",
    "without a causal mask, permuting tokens and positions alike restores the output",
    needs=["attention-only", "positions-alone"],
    source="000, solution, last paragraph; 001",
    control={
        "causal": Damage("a causal mask", needs="mask-4d"),
        "left": Damage("the positions left as they were", unless="mask-4d"),
    },
)
def test_without_a_causal_mask_permuting_both_restores_the_output(subject, draw, check):
    prompt = draw(prompts(subject, shortest=2, longest=subject.window), "prompt")
    order = draw(orders(prompt.length), "order")
    usual = positions.usual(subject, prompt.length)
    causal = masks.causal(prompt.length, subject.dtype, subject.device)
    own = full = None
    if meant.is_causal(subject):
        capabilities.require(subject, "mask-4d")
    if "mask-4d" in capabilities.probe(subject):  # without one, some read packed sequences
        full = masks.full(prompt.length, subject.dtype, subject.device)
        own = full if meant.is_causal(subject) else None
    moved = {"ids": prompt.ids[:, order], "positions": usual[order]}
    expected = check.reference(lambda s: s.rows(prompt.ids, positions=usual, mask=own)).at(order)
    check.same(expected, subject.rows(**moved, mask=full))
    if "mask-4d" in capabilities.probe(subject):
        check.rejects(expected, lambda: subject.rows(**moved, mask=causal), control="causal")
    else:
        left = {**moved, "positions": usual}
        check.rejects(expected, lambda: subject.rows(**left), control="left")


@law(
    "A7",
    "moving rows of the position table is moving position ids",
    needs=["learned-positions", "position-ids"],
    source="000, question, its code",
    control={
        "left": "the table's rows left in place",
        "packed": Damage("the explicit mask left out", needs="packed-positions"),
    },
)
def test_moving_rows_of_the_table_is_moving_position_ids(subject, draw, check):
    prompt = draw(prompts(subject, shortest=2, at_edges=True), "prompt")
    order = draw(orders(prompt.length), "order")
    moved = positions.usual(subject, prompt.length)[order]
    # Without an explicit mask, positions out of order are read as packed sequences.
    mask = None
    if meant.is_causal(subject):
        capabilities.require(subject, "mask-4d")
        mask = masks.causal(prompt.length, subject.dtype, subject.device)
    expected = check.reference(lambda s: s.rows(prompt.ids, positions=moved, mask=mask))
    with rows_moved(subject, order):
        rows = subject.rows(prompt.ids, mask=mask)
    check.same(expected, rows)  # outside, as it may run the plain path again
    check.rejects(expected, lambda: subject.rows(prompt.ids, mask=mask), control="left")
    if "packed-positions" in capabilities.probe(subject):
        unmasked = functools.partial(subject.rows, prompt.ids, positions=moved)
        check.rejects(expected, unmasked, control="packed")


@law(
    "A7",
    "positions given explicitly are those that are counted without them",
    needs=["position-ids"],
    source="000, question, its code; beyond",
    control="the same positions in reverse",
)
@pytest.mark.parametrize("shape", ["batch", "one row"])
def test_positions_given_are_positions_counted(subject, shape, draw, check):
    if shape == "one row":
        capabilities.require(subject, "one-row-of-positions")
    prompt = draw(prompts(subject, shortest=2, at_edges=True), "prompt")
    counted = positions.usual(subject, prompt.length)[None]
    explicit = counted.repeat(prompt.rows, 1) if shape == "batch" else counted
    expected = check.reference(lambda s: s.rows(prompt.ids))
    name = subject.positions_argument
    check.same(expected, subject.rows(prompt.ids, **{name: explicit}))
    check.rejects(expected, lambda: subject.rows(prompt.ids, **{name: explicit.flip(1)}))


@law(
    "A7",
    "positions given beside a cache are those that are counted without them",
    needs=["position-ids", "cache"],
    source="000, question, its code; beyond",
    control="the same positions in reverse",
)
def test_positions_given_beside_a_cache_are_positions_counted(subject, draw, check):
    prompt = draw(prompts(subject, shortest=2, longest=48, at_edges=True), "prompt")
    chunks = draw(chunkings(prompt, subject=subject), "chunks")
    explicit = positions.usual(subject, prompt.length)
    expected = check.reference(lambda s: s.rows(prompt.ids, states=False))
    check.same(expected, caches.decode(subject, prompt.ids, chunks, positions=explicit))
    mixed = functools.partial(
        caches.decode, subject, prompt.ids, chunks, positions=explicit.flip(0)
    )
    check.rejects(expected, mixed)


@law(
    "A8",
    "only relative distance matters: a constant added to all positions changes nothing",
    needs=["relative-positions"],
    source="beyond the documents",
    control="every distance doubled",
)
def test_a_constant_added_to_all_positions_changes_nothing(subject, draw, check):
    longest = subject.context - 1 if subject.context else None
    prompt = draw(prompts(subject, shortest=2, longest=longest), "prompt")
    usual = positions.usual(subject, prompt.length)
    room = (subject.context or prompt.length + FAR) - prompt.length
    shift = draw(st.integers(1, min(room, FAR)), "shift")
    expected = check.reference(lambda s: s.rows(prompt.ids))
    check.same(expected, subject.rows(prompt.ids, positions=usual + shift))
    longest = min(subject.window or FAR, (subject.context or FAR) // 2)
    if prompt.length <= longest:
        mask = None
        if "mask-4d" in capabilities.probe(subject):  # without one, some read packed sequences
            build_mask = masks.causal if meant.is_causal(subject) else masks.full
            mask = build_mask(prompt.length, subject.dtype, subject.device)
        check.rejects(expected, lambda: subject.rows(prompt.ids, positions=2 * usual, mask=mask))
