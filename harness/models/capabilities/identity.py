"""Capabilities about what a model is: causal or not, its embeddings, weights and tokenizer."""

from __future__ import annotations

import torch
from transformers import PreTrainedTokenizerBase

from assay.harness.models.capabilities.registry import capability
from assay.harness.models.machine import weights
from assay.harness.models.machine.symmetric import eigenvalues
from assay.harness.models.machine.weights import is_quantised
from assay.harness.models.subject import Subject, lora, meant
from assay.harness.models.subject.provenance import Training
from assay.harness.models.subject.wrapped import Wrapped
from assay.harness.results.errors import Missing, Unavailable


@capability("causal")
def _causal(subject: Subject) -> None:
    """Meant to be causal: C1 tests whether it is."""
    if (meaning := meant.direction(subject)).ways != meant.CAUSAL:
        raise Missing(meaning.why)


@capability("bidirectional")
def _bidirectional(subject: Subject) -> None:
    if (meaning := meant.direction(subject)).ways != meant.BOTH:
        raise Missing(f"the model is causal: {meaning.why}" if meaning.ways else meaning.why)


@capability("lm-head")
def _lm_head(subject: Subject) -> None:
    if subject.model.get_output_embeddings() is None:
        raise Missing("the model has no output embedding")


@capability("logits")
def _logits(subject: Subject) -> None:
    """A pass returns logits for each token, by a head or otherwise."""
    n = max(2, subject.shortest)
    ids = subject.content(torch.arange(n, device=subject.device)[None])
    if "logits" not in subject.rows(ids, states=False).tensors:
        raise Missing("the model returns no logits for each token")


@capability("tied-head")
def _tied_head(subject: Subject) -> None:
    head = subject.model.get_output_embeddings()
    if getattr(head, "weight", None) is not subject.embedding_table:
        raise Missing("the output embedding is not the input embedding")


@capability("weights-in-memory")
def _weights_in_memory(subject: Subject) -> None:
    """For modified copies that read or redraw every weight; a pass does not need it."""
    if away := weights.offloaded(subject.model):
        raise Unavailable(
            f"{len(away)} parameters are offloaded by --device-map, such as {away[0]}"
        )
    if is_quantised(subject.model):  # nor does transformers save them again
        raise Missing("the weights are quantised, and no copy of them is made")


@capability("saving")
def _saving(subject: Subject) -> None:
    """The model's save_pretrained writes all of it."""
    if isinstance(subject.model, Wrapped):
        raise Missing("a plain module or function has no save_pretrained")
    if lora.has_adapter(subject.model):
        raise Missing("the model has an adapter in it, which save_pretrained does not save")


@capability("files")
def _files(subject: Subject) -> None:
    """It, or its adapter, was loaded from a folder of safetensors."""
    if subject.folder is None or not subject.folder.is_dir():
        raise Missing("the model was not loaded from a folder of safetensors")


@capability("gguf-file")
def _gguf_file(subject: Subject) -> None:
    """It was loaded from a GGUF file."""
    if subject.folder is None or subject.folder.is_dir():
        raise Missing("the model was not loaded from a GGUF file")


@capability("tokenizer")
def _tokenizer(subject: Subject) -> None:
    if not isinstance(subject.tokenizer, PreTrainedTokenizerBase):
        raise Missing("no tokenizer came with the model")


@capability("trained")
def _trained(subject: Subject) -> None:
    """Not known to be untrained: results on weights of unknown training say so."""
    if subject.provenance.training is Training.UNTRAINED:
        raise Missing("the model was made from a seed and never trained")


@capability("usual-weights")
def _usual_weights(subject: Subject) -> None:
    """Trained, or initialised as such models usually are."""
    if subject.provenance.unusual:
        raise Missing(subject.provenance.unusual)


@capability("full-rank-embedding")
def _full_rank(subject: Subject) -> None:
    table = subject.embedding_table.detach()
    first = table[: 4 * subject.hidden].double()
    # Further rows lower no eigenvalue, and the largest is at most the squared norm.
    most = float(torch.linalg.vector_norm(table, dtype=torch.float64)) ** 2
    if eigenvalues(first.T @ first)[0] > 1e-12 * most:
        return
    table = table.double()
    spectrum = eigenvalues(table.T @ table)
    if subject.vocabulary < subject.hidden or spectrum[0] <= 1e-12 * spectrum[-1]:
        raise Missing("the columns of the input embedding are linearly dependent")
