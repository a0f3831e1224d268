"""The logits of some positions only, which generation requests (beyond the documents)."""

from __future__ import annotations

import pytest
import torch
from hypothesis import strategies as st

from assay.fixtures.prompts import prompts
from assay.harness.checking.laws import law
from assay.harness.models.subject import compat
from assay.harness.results.errors import REFUSALS, Missing, first_line


@law(
    "G8",
    "requested logits are those of the whole pass",
    needs=["logits-to-keep"],
    source="beyond the documents",
    control="the logits one position before",
)
@pytest.mark.parametrize("how", ["number", "positions"])
def test_requested_logits_are_those_of_the_whole_pass(subject, how, draw, check):
    prompt = draw(prompts(subject, shortest=2), "prompt")
    places = torch.arange(prompt.length, device=prompt.ids.device)
    if how == "number":
        request = draw(st.integers(1, prompt.length), "number")
        which = places[-request:]
    else:
        anywhere = st.sets(st.integers(0, prompt.length - 1), min_size=1, max_size=4)
        request = which = places[sorted(draw(anywhere, "positions"))]
    expected = check.reference(lambda s: s.rows(prompt.ids, states=False))
    alone = requested(subject, prompt.ids, request)
    check.same(expected.at(which), alone.only("logits"))
    check.rejects(expected.at(which), expected.plain.map(lambda t: t.roll(1, 1)).at(which))


def requested(subject, ids, request):
    """The logits of a number of last positions, or at positions.

    Raises `Missing` where a class that is not the library's takes no positions: they are the
    library's own convention.
    """
    promised = compat.is_of_the_library(subject.model) or not torch.is_tensor(request)
    try:
        rows = subject.rows(ids, states=False, kept_logits=request)
    except REFUSALS as error:
        if promised:
            raise
        raise Missing(f"logits-at-positions: {first_line(error)}") from error
    if not promised and rows["logits"].shape[1] != len(request):
        raise Missing("logits-at-positions: logits_to_keep is a number for this class")
    return rows
