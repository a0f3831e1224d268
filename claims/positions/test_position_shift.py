"""A constant added to all learned positions (beyond the documents; the other half of A8)."""

from __future__ import annotations

from assay.claims.positions.test_position_effects import ENTIRELY, last_tensor
from assay.fixtures.texts import LENGTHS, on_text_and_random_tokens, prompts
from assay.harness.checking import measures
from assay.harness.checking.findings import Bound, finding
from assay.harness.checking.statistics import share
from assay.harness.models.capabilities import Missing
from assay.harness.models.subject import positions
from assay.harness.operations.position_rows import rows_replaced, rows_used

SHIFTS = (1, 3, 10, 30)
"""Constants to add; each draw has one of those that fit into the context."""


@finding(
    "A8",
    "of learned positions more than the distance matters: a constant added to all changes rows",
    needs=["learned-positions", "position-ids"],
    source="beyond the documents",
    bound=Bound(share, at_least=0.95),
    control="the rows of the position table moved by the same constant",
)
@on_text_and_random_tokens
def test_a_constant_added_to_learned_positions_changes_rows(subject, source, draws, sample):
    threshold = measures.far_distance(subject, ENTIRELY)
    for prompt in prompts(subject, source, draws, LENGTHS[:2]):
        fitting = those_that_fit(subject, prompt.length)
        for k, shift in enumerate(fitting):
            ids = prompt.ids[k :: len(fitting)]
            if not len(ids):
                continue
            usual, shifted = last_row(subject, ids), last_row(subject, ids, shift)
            with rows_replaced(subject, rows_used(subject).roll(shift, 0)):
                restored = last_row(subject, ids, shift)
            distance = measures.apart(shifted, usual)
            sample.add(effect=distance > threshold, relative_distance=distance)
            sample.add(control=measures.apart(restored, usual) > threshold)


def those_that_fit(subject, n):
    """The `SHIFTS` that leave positions of ``n`` tokens in the context; `Missing` if none does."""
    room = (subject.context or n + SHIFTS[-1]) - n
    fitting = [shift for shift in SHIFTS if shift <= room]
    if not fitting:
        raise Missing(f"the context of {subject.context} has no room past {n} tokens")
    return fitting


def last_row(subject, ids, shift=0):
    """The last token's logits, or its output, at positions that are all ``shift`` later.

    [batch, features].
    """
    moved = positions.usual(subject, ids.shape[1]) + shift
    return last_tensor(subject.rows(ids, positions=moved, states=False))[:, -1]
