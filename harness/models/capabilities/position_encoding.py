"""Capabilities about positions: how a model encodes them, and whether it runs without them."""

from __future__ import annotations

from torch import Tensor

from assay.harness.models.capabilities.blending import blends, embeds_several
from assay.harness.models.capabilities.probing import affects, embedded, prompt
from assay.harness.models.capabilities.registry import capability, needs, probe
from assay.harness.models.subject import Subject
from assay.harness.models.subject.positions import position_table
from assay.harness.results.errors import Missing


@capability("learned-positions")
def _learned_positions(subject: Subject) -> None:
    if position_table(subject) is None:
        raise Missing("no embedding is looked up by position")


@capability("added-positions")
def _added_positions(subject: Subject) -> None:
    """Rows of a position embedding are added to the token embeddings."""
    needs(subject, "learned-positions")
    width = position_table(subject).weight.shape[1]
    if width != subject.hidden:
        raise Missing(f"a position is {width} wide, an embedding {subject.hidden}")


@capability("absolute-positions")
def _absolute_positions(subject: Subject) -> None:
    """The first block's input distinguishes equal tokens by their position."""
    if prompt(subject).shape[1] < 2:
        raise Missing("a context of one token has one position")

    def others_and_first(each: Subject) -> tuple[Tensor, Tensor]:
        ids = prompt(each)
        alike = ids[:, :1].expand_as(ids)
        try:
            states = embedded(each, alike)
        except Missing:  # a model that pads long prompts by itself returns rows for short ones
            states = embedded(each, alike[:, :2])
        return states[:, 1:], states[:, :1].expand_as(states[:, 1:])

    if not affects(subject, others_and_first):
        raise Missing("equal tokens give equal inputs of the first block at every position")


@capability("relative-positions")
def _relative(subject: Subject) -> None:
    """Positions are arguments and act through their differences (rotary)."""
    needs(subject, "position-ids")
    if "learned-positions" in probe(subject):
        raise Missing(
            "positions are absolute: learned position embeddings are added to the token embeddings"
        )
    if "absolute-positions" in probe(subject):
        raise Missing("positions are absolute: they are added to the embeddings")


@capability("order-blind")
def _order_blind(subject: Subject) -> None:
    """Can run so that only the mask distinguishes positions."""
    if "recurrence" in probe(subject):
        raise Missing("a recurrence reads its input in order")
    if blended := blends(subject) or embeds_several(subject):
        raise Missing(blended)
    if (why := probe(subject).why_missing("positions-alone")) is not None:
        raise Missing(f"positions cannot be removed: {why}")
