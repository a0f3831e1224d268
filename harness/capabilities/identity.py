"""What a model is: causal or not, its embeddings, its weights, what came with it."""

from __future__ import annotations

import torch
from transformers import PreTrainedTokenizerBase

from harness import compat, placement
from harness.capabilities.registry import capability, of
from harness.errors import Missing
from harness.subject import Subject

BOTH_WAYS = {"is_causal": False, "causal": False, "attn_type": "bi"}
"""Fields of configurations, and what they say where a model that generates attends both ways."""


@capability("causal")
def _causal(subject: Subject) -> None:
    if not compat.can_generate(subject.model):
        raise Missing("the model does not generate: its attention runs both ways")
    for field, value in BOTH_WAYS.items():
        if getattr(subject.config, field, None) == value:
            raise Missing(f"the configuration says {field} = {value!r}")


@capability("bidirectional")
def _bidirectional(subject: Subject) -> None:
    if "causal" in of(subject):
        raise Missing("the model is causal")


@capability("lm-head")
def _lm_head(subject: Subject) -> None:
    if subject.model.get_output_embeddings() is None:
        raise Missing("the model has no output embedding")


@capability("tied-head")
def _tied_head(subject: Subject) -> None:
    head = subject.model.get_output_embeddings()
    if getattr(head, "weight", None) is not subject.embedding_table:
        raise Missing("the output embedding is not the input embedding")


@capability("weights-in-memory")
def _weights_in_memory(subject: Subject) -> None:
    """For twins that read or redraw every weight; a pass does without."""
    if away := placement.offloaded(subject.model):
        raise Missing(f"{len(away)} parameters are offloaded by --device-map, such as {away[0]}")


@capability("tokenizer")
def _tokenizer(subject: Subject) -> None:
    if not isinstance(subject.tokenizer, PreTrainedTokenizerBase):
        raise Missing("no tokenizer came with the model")


@capability("trained")
def _trained(subject: Subject) -> None:
    """Trained unless it was made from a seed: an untrained model loses as much as chance does."""
    if subject.name.startswith(("tiny:", "untrained:")):
        raise Missing("the model was made from a seed and never trained")


@capability("usual-weights")
def _usual_weights(subject: Subject) -> None:
    """Trained, or drawn as such models are drawn before they are trained."""
    if subject.name.startswith("tiny:"):
        raise Missing("the weights of tiny models are at unit gain, as nobody begins a training")


@capability("full-rank-embedding")
def _full_rank(subject: Subject) -> None:
    table = subject.embedding_table.detach().double()
    spectrum = torch.linalg.eigvalsh(table.T @ table)
    if subject.vocabulary < subject.hidden or spectrum[0] <= 1e-12 * spectrum[-1]:
        raise Missing("the columns of the input embedding are linearly dependent")
