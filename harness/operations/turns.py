"""Continues a prompt on the cache of an earlier generation, as in a conversation."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from assay.harness.models.rows import Rows
from assay.harness.models.subject import Subject
from assay.harness.operations import generation
from assay.harness.operations.generation import Generated


@dataclass(frozen=True)
class Turn:
    """What was generated, the ``sequence`` [batch, n + new] of all ids, and the cache after it.

    The cache holds all but the last token of the sequence.
    """

    generated: Generated
    sequence: Tensor
    cache: Any


def continued(subject: Subject, ids: Tensor, cache: Any = None) -> Turn:
    """Continue ``ids`` [batch, n], of which ``cache`` holds the first ones, greedily."""
    output = generation.raw(subject, ids, past_key_values=cache, use_cache=True)
    logits = torch.stack(output.logits, dim=1)
    new = output.sequences[:, -logits.shape[1] :]
    scores = torch.stack(output.scores, dim=1)
    generated = Generated(ids, new, Rows({"logits": logits}), scores)
    return Turn(generated, output.sequences, output.past_key_values)


def read(subject: Subject, ids: Tensor) -> Any:
    """The cache of a pass over ``ids`` [batch, n]."""
    return subject(ids, keep=True, states=False).cache


def copy_of(cache: Any) -> Any:
    """A copy that goes on by itself, made as the library's guide on prefixes does."""
    return copy.deepcopy(cache)
