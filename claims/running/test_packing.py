"""Samples packed into one row, as in training without padding (beyond the documents)."""

from __future__ import annotations

import torch
from hypothesis import strategies as st

from assay.fixtures.prompts import prompts
from assay.harness.checking.laws import law
from assay.harness.models.reference.tolerances import farthest
from assay.harness.models.subject import masks, samples
from assay.harness.results.errors import Missing


@law(
    "G1",
    "samples packed into one row do not see each other",
    needs=["causal", "packing"],
    source="beyond the documents",
    control="positions that run on over the samples",
)
def test_samples_packed_into_one_row_do_not_see_each_other(subject, draw, check):
    each = draw_samples(subject, draw)
    positions = samples.counted(subject, [ids.shape[1] for ids in each])
    kept_apart(subject, each, check, {"positions": positions})


@law(
    "G1",
    "samples packed into one row are kept apart by their lengths",
    needs=["causal", "packed-lengths"],
    source="beyond the documents; transformers#46093, #46859",
    control="one sample of all tokens",
)
def test_samples_packed_into_one_row_are_kept_apart_by_their_lengths(subject, draw, check):
    each = draw_samples(subject, draw)
    kept_apart(subject, each, check, samples.packed(subject, [ids.shape[1] for ids in each]))


@law(
    "G1",
    "beside a 2-D mask of ones all layers keep packed samples apart, or none does",
    needs=["causal", "packing", "mask-4d"],
    source="beyond the documents; transformers#46634",
    control="the rows of samples that are apart where they are together, or together where apart",
)
def test_beside_a_mask_of_ones_all_layers_keep_samples_apart_or_none(subject, draw, check):
    # Past its window a model hides more than the causal mask does.
    each = draw_samples(subject, draw, subject.window)
    ids, positions = (
        torch.cat(each, dim=1),
        samples.counted(subject, [ids.shape[1] for ids in each]),
    )
    last = slice(ids.shape[1] - each[-1].shape[1], ids.shape[1])

    def together(s):
        mask = masks.causal(ids.shape[1], s.dtype, s.device)
        return s.rows(ids, positions=positions, mask=mask).at(last)

    ones = subject.rows(ids, positions=positions, mask=torch.ones_like(ids)).at(last)
    ways = {TOGETHER: together, APART: lambda s: s.rows(each[-1])}
    near = {way: largest_error(ones, run(subject)) for way, run in ways.items()}
    way, other = sorted(ways, key=near.__getitem__)
    check.details["beside a mask of ones"] = way
    expected = check.reference(ways[way])
    check.same(expected, ones)
    check.rejects(expected, lambda: ways[other](subject))


APART, TOGETHER = "samples are kept apart", "samples see those before them"


def largest_error(observed, exact):
    """How far rows are from others at most, relative to these."""
    return max(each.error for each in farthest(observed, exact).values())


def draw_samples(subject, draw, most=None):
    """Three samples of 2 to 24 tokens, which fit the context, and ``most`` tokens, together: ids
    [1, length].
    """
    longest = min(24, (subject.context or 72) // 3, (most or 72) // 3)
    if longest < max(2, subject.shortest):
        raise Missing(f"a context of {subject.context} tokens is too short for three samples")
    first = draw(prompts(subject, shortest=2, longest=longest, rows=1), "first")
    second = draw(prompts(subject, shortest=2, longest=longest, rows=1), "second")
    third = subject.content(first.ids[:, : draw(st.integers(2, first.length), "third")] + 5)
    return [first.ids, second.ids, third]


def kept_apart(subject, each, check, how):
    """Compare samples packed into one row with each alone; ``how`` are the arguments that separate
    them.
    """
    packed = torch.cat(each, dim=1)
    rows, running, begin = subject.rows(packed, **how), None, 0
    for ids in each:
        place = slice(begin, begin + ids.shape[1])
        expected = check.reference(lambda s, ids=ids: s.rows(ids))
        check.same(expected, rows.at(place))
        if begin and check.wants():
            running = running or subject.rows(packed)
            check.rejects(expected, running.at(place))
        begin = place.stop
