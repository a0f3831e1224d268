"""A step of the library's trainer."""

from __future__ import annotations

import gc
import os
from copy import copy

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState

from assay.harness.models import capabilities
from assay.harness.models.loading.wrapping import wrap
from assay.harness.models.subject import Subject
from assay.harness.operations import losses, padding, trainer, training
from assay.harness.results.errors import Missing
from assay.harness.tests.support.toys import fresh, prompt, toy

LONG = 7


def batch(subject, lengths=(LONG, 3, 2)):
    """A padded batch, and the ids that it is made of."""
    ids = torch.cat([prompt(subject, LONG)[:1].roll(row, 1) for row in range(len(lengths))])
    return padding.ragged(subject, ids, [*lengths]), ids


def labelled(subject):
    return trainer.labelled(subject, training.padded(subject, batch(subject)[0]))


@pytest.mark.parametrize("name", ["llama", "opt", "bert", "t5"])
def test_its_gradients_are_those_of_the_cross_entropy(name):
    subject = fresh(name)
    padded, ids = batch(subject)
    whole, names = labelled(subject), training.names(subject)
    each = [training.sample(subject, some) for some in padding.samples(ids, padded)]
    mine = training.Exact(training.gradients(subject, each, names))
    assert mine.apart(trainer.gradients(subject, [whole], names)).error < 1e-4
    several = mine.apart(trainer.gradients(subject, whole.halves(), names)).error
    # docs/defects/losses_ignore_num_items_in_batch.py
    assert several < 1e-4 if name in ("llama", "opt") else several > 0.1


def test_the_first_id_of_a_row_is_a_label_too_and_not_the_first_after_padding():
    subject = toy("llama")
    labels = labelled(subject).arguments["labels"]
    assert batch(subject)[0].left
    assert labels.ne(losses.IGNORED).sum(1).tolist() == [LONG, 2, 1]
    assert labelled(subject).counted == LONG - 1 + 2 + 1


def test_nothing_is_left_behind(capfd):
    subject = fresh("llama")
    whole, names = labelled(subject), training.names(subject)
    accelerator = Accelerator(mixed_precision="bf16", cpu=True)

    def state():
        return (
            dict(os.environ),
            copy(AcceleratorState._shared_state),
            {n: (p.requires_grad, p._version) for n, p in subject.model.named_parameters()},
            set(vars(subject.model)),
        )

    before = state()
    seed = torch.get_rng_state()
    try:
        trainer.gradients(subject, [whole], names)
        assert accelerator.mixed_precision == "bf16"
        after = state()
    finally:
        AcceleratorState._reset_state(reset_partial_state=True)
    assert after == before
    assert torch.equal(torch.get_rng_state(), seed)
    assert all(parameter.grad is None for parameter in subject.model.parameters())
    assert gc.get_freeze_count() == 0
    assert capfd.readouterr().out == ""


def test_a_trainer_that_refuses_a_model_is_a_missing_capability(monkeypatch):
    subject = fresh("llama")
    whole, names = labelled(subject), training.names(subject)
    monkeypatch.setattr(subject.model, "is_quantized", True, raising=False)
    with pytest.raises(Missing, match="trainer: it refuses the model: "):
        trainer.gradients(subject, [whole], names)


def test_a_plain_module_is_not_trained():
    class Plain(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(31, 8)

        def forward(self, ids, labels=None):
            logits = self.embedding(ids) @ self.embedding.weight.T
            if labels is None:
                return logits
            cost = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
            return {"logits": logits, "loss": cost}

    subject = Subject("plain", wrap("plain", Plain().eval().requires_grad_(False)))
    with pytest.raises(Missing, match="is not one of the library's models"):
        capabilities.require(subject, "trainer")
