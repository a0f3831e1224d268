"""The loss that a model returns for labels, by which it is trained (beyond the documents)."""

from __future__ import annotations

import pytest
import torch
from hypothesis import reject
from hypothesis import strategies as st

from assay.fixtures.prompts import lengths, prompts
from assay.harness.checking.laws import law
from assay.harness.models import capabilities
from assay.harness.operations import losses, padding


@law(
    "G2",
    "the loss is the cross-entropy of the labels",
    needs=["loss"],
    source="beyond the documents; transformers#34191",
    control="the labels one position later",
)
@pytest.mark.parametrize("labels", ["all", "some ignored", "padded", "counted over batches"])
def test_the_loss_is_the_cross_entropy_of_the_labels(subject, labels, draw, check):
    over_batches = labels == "counted over batches"
    if over_batches:
        capabilities.require(subject, "loss-over-batches")
    if labels == "padded":
        capabilities.require(subject, "padding")
    prompt = draw(prompts(subject, shortest=3), "prompt")
    ids, wanted, options = prompt.ids, prompt.ids, {}
    if labels == "padded":
        batch = padding.ragged(subject, prompt.ids, draw(lengths(prompt), "lengths"))
        ids, wanted, options = batch.ids, losses.of_padded(subject, batch), batch.arguments
    elif labels != "all":
        wanted = prompt.ids.where(draw(some(prompt), "counting"), losses.IGNORED)
    expected = check.reference(lambda s: s.rows(ids, states=False, **options))
    # Some heads score fewer ids than are embedded.
    wanted = wanted.where(wanted < expected.oracle["logits"].shape[-1], losses.IGNORED)
    shifted = losses.is_shifted(subject)
    if not (number := losses.counted(wanted, shifted)):
        reject()
    if over_batches:
        number *= draw(st.integers(2, 5), "batches")
        options = {"num_items_in_batch": number}
    costs = losses.each(expected.oracle, wanted, shifted)
    plain = losses.each(expected.plain, wanted, shifted)
    exact = float(costs.sum()) / number
    size = float(losses.sizes(expected.oracle, wanted, shifted).sum()) / number
    # The labels' own errors, of which many would cancel in the sum by luck.
    noise = float((plain - costs).abs().sum()) / number / size
    allowed = check.tolerance.allowed(noise)
    mine = losses.own(subject, ids, wanted, **options)
    check.judge(abs(mine - exact) / size, allowed, "the loss")
    later = float(losses.each(expected.oracle, wanted.roll(1, 1), shifted).sum()) / number
    check.judge_control(abs(later - exact) / size, allowed)
    check.sees(lambda share: (abs(mine + share * size - exact) / size, allowed), noise=noise)


@st.composite
def some(draw, prompt):
    """Which ids of a prompt count as labels: not the same ones in each row [batch, n]."""
    row = st.lists(st.booleans(), min_size=prompt.length, max_size=prompt.length)
    rows = draw(st.lists(row, min_size=prompt.rows, max_size=prompt.rows))
    counting = torch.tensor(rows, device=prompt.ids.device)
    if not bool(counting[:, 1:].any()):
        counting[-1, -1] = True
    return counting
