"""Copies of a model whose weights are tied again, or that have room for new tokens."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from assay.harness.models.capabilities import Missing, require
from assay.harness.models.machine.shortage import pass_on
from assay.harness.models.reference.copying import copy_model
from assay.harness.models.reference.tolerances import bit_equal
from assay.harness.models.subject import Subject
from assay.harness.models.subject.memo import memo
from assay.harness.models.subject.rows import Rows
from assay.harness.operations import variants
from assay.harness.operations.differences import Share, largest
from assay.harness.results.errors import REFUSALS, brief

NEW_TOKENS = 3
"""Rows that are added to the embedding matrix."""


def tied_again(subject: Subject) -> Subject:
    """A copy after another ``tie_weights()``, as of training scripts and of merging adapters.

    Raises `Missing` where memory does not hold another model.
    """
    model = _copy(subject)
    model.tie_weights()
    return variants.copied_as(subject, f"{subject.name}, tied again", model)


@memo
def with_new_tokens(subject: Subject) -> Subject:
    """A copy after ``resize_token_embeddings()`` by `NEW_TOKENS` rows, which are drawn at random.

    Raises `Missing` where the model cannot be resized, or memory does not hold another one.
    """
    model = _copy(subject)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        try:
            model.resize_token_embeddings(tokens(subject) + NEW_TOKENS, mean_resizing=False)
        except REFUSALS as error:
            pass_on(error)
            raise Missing(f"the model cannot be resized ({brief(error, 100)})") from error
    model.requires_grad_(False).eval()
    return variants.copied_as(subject, f"{subject.name}, with new tokens", model)


def tokens(subject: Subject) -> int:
    """Rows of the embedding matrix that ``resize_token_embeddings()`` changes.

    Raises `Missing` where there is none.
    """
    weight = getattr(subject.model.get_input_embeddings(), "weight", None)
    if not torch.is_tensor(weight) or weight.ndim != 2:
        raise Missing("the model's input embedding is no table")
    return len(weight)


def lost(subject: Subject, resized: Subject) -> Share:
    """The largest share of elements that differ in a copy with new tokens, of any weight of the
    input and the output embedding.

    The rows of the new tokens are left out.
    """
    theirs = _of_embeddings(resized.model)
    return largest(
        {
            name: bit_equal(own, theirs[name][: len(own)]) if name in theirs else 1.0
            for name, own in _of_embeddings(subject.model).items()
        }
    )


def _of_embeddings(model: Any) -> dict[str, Tensor]:
    """The weights of the modules that have a row for each token."""
    modules = [model.get_input_embeddings(), model.get_output_embeddings()]
    owned = {id(weight) for each in modules if each is not None for weight in each.parameters()}
    return {
        name: weight
        for name, weight in model.named_parameters(remove_duplicate=False)
        if id(weight) in owned
    }


def of_old_tokens(rows: Rows, like: Rows) -> Rows:
    """The ``rows`` of a copy with new tokens, without the logits of those."""
    return Rows(
        {name: tensor[..., : like[name].shape[-1]] for name, tensor in rows.tensors.items()}
    )


def _copy(subject: Subject) -> Any:
    require(subject, "weights-in-memory")
    require(subject, "saving")  # that is, a model of the library without an adapter in it
    if not variants.fits_twice(subject):
        raise Missing("memory does not hold another model")
    return copy_model(subject.model)
