"""Capabilities that a model has unless its design says otherwise (`designs`)."""

from __future__ import annotations

from assay.harness.models.capabilities.registry import capability, needs
from assay.harness.models.subject import Subject


@capability("embeddings-alone")
def _embeddings_alone(subject: Subject) -> None:
    """Embeddings in place of ids are all that a pass has to be given."""
    needs(subject, "inputs-embeds")


@capability("one-row-of-positions")
def _one_row_of_positions(subject: Subject) -> None:
    """One row of positions stands for all prompts of a batch."""
    needs(subject, "position-ids")


@capability("steady-cost")
def _steady_cost(subject: Subject) -> None:
    """What a step computes depends on the number of tokens, and every one adds as much."""


@capability("fixed-sight")
def _fixed_sight(subject: Subject) -> None:
    """Which of the past a token attends to is decided when it is read."""


@capability("repeatable")
def _repeatable(subject: Subject) -> None:
    """No position is a mark: a first token is read like any other."""


@capability("bfloat16")
def _bfloat16(subject: Subject) -> None:
    """Every operation of the model is there in bfloat16."""
