"""Capabilities that a model has unless its design says otherwise (`designs`)."""

from __future__ import annotations

from assay.harness.models.capabilities.registry import capability, needs
from assay.harness.models.subject import Subject


@capability("embeddings-alone")
def _embeddings_alone(subject: Subject) -> None:
    """A pass needs nothing but embeddings in place of ids."""
    needs(subject, "inputs-embeds")


@capability("one-row-of-positions")
def _one_row_of_positions(subject: Subject) -> None:
    """One row of positions applies to all prompts of a batch."""
    needs(subject, "position-ids")


@capability("steady-cost")
def _steady_cost(subject: Subject) -> None:
    """The cost of a step depends only on the number of tokens, and each adds the same."""


@capability("fixed-sight")
def _fixed_sight(subject: Subject) -> None:
    """The past positions to which a token attends are fixed when it is read."""


@capability("repeatable")
def _repeatable(subject: Subject) -> None:
    """No position is special: the model reads a first token like any other."""


@capability("repeats")
def _repeats(subject: Subject) -> None:
    """Nothing in a pass is drawn at random, as hashes of attention are in some models."""


@capability("bfloat16")
def _bfloat16(subject: Subject) -> None:
    """Every operation of the model exists in bfloat16."""
