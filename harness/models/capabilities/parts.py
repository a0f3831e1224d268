"""Capabilities about a model's parts and uses: attention alone, blocks, generation."""

from __future__ import annotations

from assay.harness.models import compat, sinks
from assay.harness.models.capabilities.blending import blends, embeds_several
from assay.harness.models.capabilities.probing import prompt, visible
from assay.harness.models.capabilities.registry import capability, probe
from assay.harness.models.subject import Subject
from assay.harness.results.errors import Missing


@capability("attention-only")
def _attention_only(subject: Subject) -> None:
    """Only attention, and so the mask, decides which past positions are read."""
    if "recurrence" in probe(subject):
        raise Missing("a layer has a recurrent state, which no mask can separate")
    if blended := blends(subject):
        raise Missing(blended)
    if blended := embeds_several(subject):
        raise Missing(blended)
    if not subject.attentions(prompt(subject)):
        raise Missing("the model returns no attention weights: something else mixes its positions")


@capability("whole-attention")
def _whole_attention(subject: Subject) -> None:
    """Attention weights sum to one over the prompt: nothing else is attended to."""
    ids = prompt(subject)
    weights = subject.attentions(ids)
    sums = [layer.double().sum(-1) for layer in weights if layer.shape[-1] == ids.shape[1]]
    if len(sums) < len(weights):
        raise Missing("attention covers more than the prompt")
    if any(bool(((total - 1).abs() > visible(subject)).any()) for total in sums):
        raise Missing("attention weights do not sum to one: some attention goes to a sink")
    if sinks.present(subject):
        raise Missing("attention has a sink in addition to its weights")


@capability("generation")
def _generation(subject: Subject) -> None:
    if not compat.can_generate(subject.model):
        raise Missing("the model does not generate")


@capability("blocks")
def _blocks(subject: Subject) -> None:
    if not subject.layers:
        raise Missing("the configuration does not say how many blocks there are")
    try:
        subject.block_output(subject.layers, prompt(subject))
    except LookupError as error:
        raise Missing(str(error)) from error
