"""A model's own loss, and the cross-entropy by hand."""

from __future__ import annotations

import math

import pytest
import torch

from assay.harness.models import capabilities
from assay.harness.models.capabilities import Missing
from assay.harness.models.subject.rows import Rows
from assay.harness.operations import losses
from assay.harness.tests.support.toys import fresh, prompt, toy


@pytest.mark.parametrize(("spec", "shifted"), [("llama", True), ("bert", False), ("t5", False)])
def test_labels_are_shifted_in_causal_models_alone(spec, shifted):
    assert losses.is_shifted(toy(spec)) is shifted


def test_equal_scores_cost_the_logarithm_of_the_vocabulary():
    rows, labels = Rows({"logits": torch.zeros(2, 5, 8)}), torch.ones(2, 5, dtype=torch.long)
    assert float(losses.each(rows, labels, shifted=False).sum()) == pytest.approx(10 * math.log(8))
    assert float(losses.each(rows, labels, shifted=True).sum()) == pytest.approx(8 * math.log(8))


def test_a_row_predicts_the_label_after_it_where_labels_are_shifted():
    labels = torch.tensor([[3, 1, 2]])
    sure = torch.full((1, 3, 4), -100.0).scatter(2, labels.roll(-1, 1)[..., None], 100.0)
    rows = Rows({"logits": sure})
    assert float(losses.each(rows, labels, shifted=True).sum()) == pytest.approx(0)
    assert float(losses.each(rows, labels, shifted=False).sum()) > 100


def test_ignored_labels_neither_cost_nor_count():
    logits = torch.randn(1, 4, 7, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([[1, 2, 3, 4]])
    one = labels.clone()
    one[:, 2:] = losses.IGNORED
    assert losses.counted(one, shifted=True) == 1
    assert losses.counted(one, shifted=False) == 2
    whole = float(losses.each(Rows({"logits": logits[:, :2]}), labels[:, :2], shifted=True).sum())
    assert float(losses.each(Rows({"logits": logits}), one, shifted=True).sum()) == pytest.approx(
        whole
    )


def test_the_own_loss_is_the_mean():
    ids = prompt(toy("llama"), 6)
    total = float(losses.each(toy("llama").rows(ids), ids, shifted=True).sum())
    mean = total / losses.counted(ids, shifted=True)
    assert losses.own(toy("llama"), ids, ids) == pytest.approx(mean, rel=1e-5)


def test_a_model_that_returns_no_loss_is_named():
    subject = fresh("llama")
    subject.model.register_forward_hook(lambda module, inputs, output: {"logits": output.logits})
    with pytest.raises(Missing, match="the model returns no loss of labels, but NoneType"):
        capabilities.require(subject, "loss")
