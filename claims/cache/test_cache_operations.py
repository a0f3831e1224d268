"""Operations on a cache between two passes (document 004 and beyond)."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import strategies as st

from assay.fixtures.permutations import rearrangements
from assay.fixtures.prompts import endings, other_ids, prompts
from assay.harness.checking.laws import law
from assay.harness.models.capabilities import caches
from assay.harness.models.subject import encoders
from assay.harness.operations import cache_operations


@law(
    "C2",
    "a cache whose rows are rearranged is that of the rows rearranged",
    needs=["causal", "cache"],
    source="004, answer 2; beyond: beam search",
    control="a neighbour's row in place of one's own",
)
@pytest.mark.parametrize("operation", cache_operations.ROW_OPERATIONS)
def test_a_rearranged_cache_is_that_of_the_rows_rearranged(subject, operation, draw, check):
    prompt = draw(prompts(subject, shortest=2, least_rows=2, at_edges=True), "prompt")
    cut = draw(endings(prompt), "cut")
    rows = draw(rearrangements(prompt, operation), "rows")
    beside = encoders.beside(subject, prompt.ids)
    cache = cache_operations.fill_cache(subject, prompt.ids[:, :cut], **beside)
    cache_operations.rearrange(cache, operation, rows)
    moved = prompt.ids[rows]
    expected = check.reference(
        lambda s: s.rows(moved, states=False, **encoders.beside(s, moved))
    ).at(slice(cut, None))
    ones, beside = [1] * (prompt.length - cut), encoders.beside(subject, moved)
    going_on = caches.decode(subject, moved[:, cut:], ones, cache=cache, **beside)
    check.same(expected, going_on)
    check.rejects(expected, going_on.map(lambda t: t.roll(1, 0)))


@law(
    "C2",
    "drafts taken back leave no trace in the cache",
    needs=["causal", "cache"],
    source="004, answer 2; beyond: assisted decoding",
    control="drafts that are left in the cache",
)
def test_drafts_taken_back_leave_no_trace(subject, draw, check):
    prompt = draw(prompts(subject, 2, rows=3, at_edges=True, room=8), "prompt")
    cut = draw(endings(prompt), "cut")
    count = draw(st.integers(1, min(8, prompt.length)), "drafts")
    early = draw(st.booleans(), "mask given before the prompt")
    drafts = draw(other_ids(subject, prompt), "other ids")[:, :count]
    cache = cache_operations.take_drafts_back(subject, prompt.ids[:, :cut], drafts, early)
    expected = check.reference(lambda s: s.rows(prompt.ids, states=False)).at(slice(cut, None))
    ones = [1] * (prompt.length - cut)
    check.same(expected, caches.decode(subject, prompt.ids[:, cut:], ones, cache=cache))
    if check.wants():
        left = cache_operations.fill_cache(subject, torch.cat([prompt.ids[:, :cut], drafts], 1))
        check.rejects(expected, caches.decode(subject, prompt.ids[:, cut:], ones, cache=left))


@law(
    "C2",
    "a copy of a cache goes on as the cache would, and leaves it alone",
    needs=["causal", "cache"],
    source="004, answer 2; beyond: a prefix shared by many",
    control="the cache itself, gone on from twice",
)
@pytest.mark.parametrize("kind", ["default", "static"])
def test_a_copy_of_a_cache_goes_on_alone(subject, kind, draw, check):
    prompt = draw(prompts(subject, shortest=2, rows=3, at_edges=True), "prompt")
    cut = draw(endings(prompt), "cut")
    rest, ones = prompt.ids[:, cut:], [1] * (prompt.length - cut)
    cache = cache_operations.fill_cache(subject, prompt.ids[:, :cut], kind, spare=2 * len(ones))
    expected = check.reference(lambda s: s.rows(prompt.ids, states=False)).at(slice(cut, None))
    first = caches.decode(subject, rest, ones, cache=copy.deepcopy(cache))
    check.same(expected, first)
    check.same(expected, caches.decode(subject, rest, ones, cache=cache))
    longest = subject.context or prompt.length + len(ones)
    if prompt.length + len(ones) <= longest:
        check.rejects(expected, lambda: caches.decode(subject, rest, ones, cache=cache))
