"""Gradients by which a model is trained, summed in several ways (beyond the documents)."""

from __future__ import annotations

import pytest
from hypothesis import reject

from assay.fixtures.prompts import lengths, prompts
from assay.harness.checking.laws import law
from assay.harness.models import capabilities
from assay.harness.operations import padding, train_mode, trainer, training


@law(
    "G3",
    "gradients of a padded batch are the sum of each sample's",
    needs=["lm-head", "padding", "parameter-gradients"],
    source="beyond the documents; transformers#34191",
    control="one sample left out",
    enough=6,
)
def test_gradients_of_a_batch_are_the_sum_of_its_samples(subject, draw, check):
    prompt = draw(short_prompts(subject, rows=3, least_rows=2), "prompt")
    batch = padding.ragged(subject, prompt.ids, draw(lengths(prompt), "lengths"))
    alone = [training.sample(subject, ids) for ids in padding.samples(prompt.ids, batch)]
    plain, names = training.Plain.of(subject, alone), training.names(subject)
    together = training.gradients(subject, [training.padded(subject, batch)], names)
    judged = plain.judge(check, together)
    judged.rejects(check, plain.without_largest)
    judged.sees(check)


@law(
    "G3",
    "gradients of the model's own loss are those of the cross-entropy",
    needs=["loss", "parameter-gradients"],
    source="beyond the documents; transformers#34191",
    control="one sample left out",
    enough=6,
)
@pytest.mark.parametrize("batches", ["one", "several", "counted together"])
def test_gradients_of_the_model_s_own_loss(subject, batches, draw, check):
    """Of a batch, padded where the model can read it, or added over micro-batches, each divided by
    the number of its own labels or of all.
    """
    if batches == "counted together":
        capabilities.require(subject, "loss-over-batches")
    whole, each = batch_of_samples(subject, draw)
    names = training.names(subject)
    parts = divided(whole, batches)
    plain = training.Plain.of(subject, each)
    loss = training.own_loss(whole.counted if batches == "counted together" else None)
    judged = plain.judge(check, training.gradients(subject, parts, names, loss=loss))
    judged.rejects(check, plain.without_largest)
    judged.sees(check)


@law(
    "G3",
    "a step of the library's trainer has the gradients of the cross-entropy",
    needs=["trainer"],
    source="beyond the documents; transformers#34191",
    control="one sample left out",
    enough=6,
)
@pytest.mark.parametrize("batches", ["one", "several"])
def test_a_step_of_the_trainer_has_the_gradients_of_the_cross_entropy(
    subject, batches, draw, check
):
    """Labels are all ids but padding; micro-batches of unlike lengths count by their labels."""
    if batches == "several":
        capabilities.require(subject, "loss-over-batches")
    batch, each = batch_of_samples(subject, draw)
    whole, names = trainer.labelled(subject, batch), training.names(subject)
    parts = divided(whole, batches)
    plain = training.Plain.of(subject, each)
    judged = plain.judge(check, trainer.gradients(subject, parts, names))
    judged.rejects(check, plain.without_largest)
    judged.sees(check)


@law(
    "G3",
    "gradients in training without dropout are those in evaluation",
    needs=["lm-head", "parameter-gradients"],
    source="beyond the documents; transformers#37766",
    control="the gradients of the prompt without its first token",
    enough=6,
)
@pytest.mark.parametrize("activations", ["kept", "recomputed", "recomputed, reentrant"])
def test_gradients_in_training_are_those_in_evaluation(subject, activations, draw, check):
    if activations != "kept":
        capabilities.require(subject, "gradient-checkpointing")
    prompt = draw(short_prompts(subject, rows=2), "prompt")
    samples, names = [training.sample(subject, prompt.ids)], training.names(subject)
    plain = training.Plain.of(subject, samples)
    reentrant = {"kept": None, "recomputed": False}.get(activations, True)
    with train_mode.in_training(subject, reentrant):
        trained = training.gradients(subject, samples, names, embedding=reentrant is True)
    judged = plain.judge(check, trained)
    later = [training.sample(subject, prompt.ids[:, 1:])]
    judged.rejects(check, training.gradients(subject, later, names))
    judged.sees(check)


def short_prompts(subject, **how):
    """Prompts of 3 to 24 tokens, of which all but the first are predicted."""
    return prompts(subject, shortest=max(3, subject.shortest + 1), longest=24, **how)


def batch_of_samples(subject, draw):
    """A batch, padded where the model can read padding, and each of its samples alone."""
    prompt = draw(short_prompts(subject, least_rows=3), "prompt")
    if "padding" not in capabilities.probe(subject):
        whole, alone = training.sample(subject, prompt.ids), prompt.ids.split(1)
    else:
        batch = padding.ragged(subject, prompt.ids, draw(lengths(prompt), "lengths"))
        whole, alone = training.padded(subject, batch), padding.samples(prompt.ids, batch)
    return whole, [training.sample(subject, ids) for ids in alone]


def divided(batch, batches):
    """The whole batch or, of several, its halves: each with a label that counts."""
    parts = [batch] if batches == "one" else batch.halves()
    if not all(part.counted for part in parts):
        reject()
    return parts
