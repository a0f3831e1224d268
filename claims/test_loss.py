"""The loss that a model returns for labels, by which it is trained (beyond the documents)."""

from __future__ import annotations

import pytest
import torch
from hypothesis import reject
from hypothesis import strategies as st

from assay.fixtures.prompts import prompts
from assay.harness.checking.laws import law
from assay.harness.models import capabilities
from assay.harness.operations import losses


@law(
    "G2",
    "the loss is the cross-entropy of the labels",
    needs=["loss"],
    source="beyond the documents; transformers#34191",
    control="the labels one position later",
)
@pytest.mark.parametrize("labels", ["all", "some ignored", "counted over batches"])
def test_the_loss_is_the_cross_entropy_of_the_labels(subject, labels, draw, check):
    over_batches = labels == "counted over batches"
    if over_batches:
        capabilities.require(subject, "loss-over-batches")
    prompt = draw(prompts(subject, shortest=3), "prompt")
    expected = check.reference(lambda s: s.rows(prompt.ids, states=False))
    # Some heads score fewer ids than are embedded.
    scored = prompt.ids < expected.oracle["logits"].shape[-1]
    wanted, shifted = prompt.ids.where(scored, losses.IGNORED), losses.is_shifted(subject)
    if labels != "all":
        each = st.lists(st.booleans(), min_size=prompt.length, max_size=prompt.length)
        hidden = draw(each, "ignored")
        wanted[:, torch.tensor(hidden)] = losses.IGNORED
        wanted[:, -1] = prompt.ids[:, -1].where(scored[:, -1], losses.IGNORED)
    if not (number := losses.counted(wanted, shifted)):
        reject()
    options = {}
    if over_batches:
        number *= draw(st.integers(2, 5), "batches")
        options["num_items_in_batch"] = number
    costs = losses.each(expected.oracle, wanted, shifted)
    plain = losses.each(expected.plain, wanted, shifted)
    exact = float(costs.sum()) / number
    size = float(losses.sizes(expected.oracle, wanted, shifted).sum()) / number
    # The labels' own errors, of which many would cancel in the sum by luck.
    noise = float((plain - costs).abs().sum()) / number / size
    allowed = check.tolerance.allowed(noise)
    mine = losses.own(subject, prompt.ids, wanted, **options)
    check.judge(abs(mine - exact) / size, allowed, "the loss")
    later = float(losses.each(expected.oracle, wanted.roll(1, 1), shifted).sum()) / number
    check.judge_control(abs(later - exact) / size, allowed)
    check.sees(lambda share: (abs(mine + share * size - exact) / size, allowed), noise=noise)
