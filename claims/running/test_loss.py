"""The loss that a model returns for labels, by which it is trained (beyond the documents)."""

from __future__ import annotations

import pytest
import torch
from hypothesis import reject
from hypothesis import strategies as st

from assay.fixtures.prompts import lengths, prompts
from assay.harness.checking.laws import law
from assay.harness.models import capabilities
from assay.harness.operations import losses, padding, training


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
    wanted, shifted = losses.scored(subject, prompt.ids), losses.is_shifted(subject)
    if labels != "all":
        wanted = wanted.where(draw(counted_labels(prompt), "counting"), losses.IGNORED)
    expected = check.reference(lambda s: s.rows(prompt.ids, states=False))
    if not (number := losses.counted(wanted, shifted)):
        reject()
    options = {}
    if over_batches:
        number *= draw(st.integers(2, 5), "batches")
        options["label_count"] = number
    loss = losses.own(subject, prompt.ids, wanted, **options)
    losses.Costs.of(expected, wanted, shifted).judge(check, loss, number)


@law(
    "G2",
    "the loss of a padded batch is the cross-entropy of each sample's labels",
    needs=["loss", "padding", "fixed-sight"],
    source="beyond the documents",
    control="the labels one position later",
)
def test_the_loss_of_a_padded_batch_is_that_of_its_samples(subject, draw, check):
    prompt = draw(prompts(subject, shortest=3), "prompt")
    batch = padding.ragged(subject, prompt.ids, draw(lengths(prompt), "lengths"))
    padded, alone = training.padded(subject, batch), padding.samples(prompt.ids, batch)
    training.require_settled(subject, [training.sample(subject, ids) for ids in alone])
    shifted, parts = losses.is_shifted(subject), []
    for ids in alone:
        expected = check.reference(lambda s, ids=ids: s.rows(ids, states=False))
        parts.append(losses.Costs.of(expected, losses.scored(subject, ids), shifted))
    if not padded.counted:
        reject()
    wanted = losses.as_argument(subject, padded.labels)
    loss = losses.own(subject, batch.ids, wanted, **batch.arguments)
    losses.Costs.together(parts).judge(check, loss, padded.counted)


@st.composite
def counted_labels(draw, prompt):
    """Which ids of a prompt count as labels: not the same ones in each row [batch, n]."""
    row = st.lists(st.booleans(), min_size=prompt.length, max_size=prompt.length)
    rows = draw(st.lists(row, min_size=prompt.rows, max_size=prompt.rows))
    counting = torch.tensor(rows, device=prompt.ids.device)
    if not bool(counting[:, 1:].any()):
        counting[-1, -1] = True
    return counting
