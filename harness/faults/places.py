"""Faults of positions: learned ones, rotations, and biases by distance."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from assay.harness.faults.bed import Bed
from assay.harness.faults.calls import Pass
from assay.harness.faults.catalogue import fault, part
from assay.harness.faults.spots import biases, first_block, rotations
from assay.harness.models.capabilities import Missing
from assay.harness.models.subject import Subject, roles
from assay.harness.models.subject.positions import first_position, position_table

CACHED = ["causal", "cache", "position-ids"]


@fault(
    "positions-not-advanced",
    "with a past, positions begin at zero again",
    caught_by=["C2"],
    needs=CACHED,
    at=Bed.arguments,
)
def _from_zero(forward: Pass, kwargs: dict[str, Any]) -> None:
    if forward.cached:
        positions = torch.arange(forward.new, device=_inputs(kwargs).device)
        kwargs[forward.positions_name] = positions[None].expand(forward.rows, -1)


def _inputs(kwargs: dict[str, Any]) -> Tensor:
    inputs = roles.fed(kwargs)
    if not inputs:
        raise ValueError("neither ids nor embeddings were given")
    return inputs[0]


@fault(
    "positions-doubled-when-cached",
    "with a past, the new tokens' positions are twice what they should be",
    caught_by=["C2"],
    needs=CACHED,
)
def _double(bed: Bed) -> None:
    bed.arguments(partial(_doubled, limit=bed.subject.context))


def _doubled(forward: Pass, kwargs: dict[str, Any], limit: int | None) -> None:
    if forward.cached:
        positions = 2 * forward.indices(_inputs(kwargs))
        if limit:
            positions = positions.clamp_max(limit - 1)
        kwargs[forward.positions_name] = positions[None].expand(forward.rows, -1)


@fault(
    "explicit-positions-off-by-one",
    "positions that are given count from one, those that are not from zero",
    caught_by=["A7", "C5"],
    needs=["position-ids", "learned-positions"],
)
def _count_from_one(bed: Bed) -> None:
    table = position_table(bed.subject)
    if table is not None:
        count = len(table.weight) - first_position(bed.subject)
        bed.arguments(partial(_one_more, count=count))


def _one_more(forward: Pass, kwargs: dict[str, Any], count: int) -> None:
    if forward.positions is not None:
        kwargs[forward.positions_name] = (forward.positions + 1) % count


@fault(
    "explicit-positions-off-by-one-when-cached",
    "with a cache, given positions are read as the ones before",
    caught_by=["A7", "C5"],
    needs=CACHED,
    at=Bed.arguments,
)
def _one_less_when_cached(forward: Pass, kwargs: dict[str, Any]) -> None:
    if forward.cached and forward.positions is not None:
        kwargs[forward.positions_name] = forward.positions - 1


@fault(
    "explicit-positions-ignored-when-cached",
    "positions that are given with a cache are counted from the cache instead",
    caught_by=["C2", "C5"],
    needs=[*CACHED, "padding"],
    at=Bed.arguments,
)
def _ignored_when_cached(forward: Pass, kwargs: dict[str, Any]) -> None:
    if forward.cached and forward.positions is not None:
        kwargs[forward.positions_name] = forward.indices(forward.positions)[None].expand(
            forward.rows, -1
        )


@fault(
    "rotation-scaled-when-cached",
    "with a past, the angles of the new tokens are a hundredth larger",
    caught_by=["C2"],
    needs=[*CACHED, "rotary"],
    at=rotations,
)
def _scaled(forward: Pass, positions: Tensor) -> Tensor:
    return positions * 1.01 if forward.cached else positions


@fault(
    "rotation-off-by-one-when-cached",
    "with a past, new tokens are rotated one position too far",
    caught_by=["C2"],
    needs=[*CACHED, "rotary"],
    at=rotations,
)
def _further(forward: Pass, positions: Tensor) -> Tensor:
    return positions + 1 if forward.cached else positions


STOP = 40
"""The last position that `_stopped` leaves as it is."""


@part("positions past the fortieth")
def _past_the_fortieth(subject: Subject) -> None:
    if subject.context is not None and subject.context <= STOP + 1:
        raise Missing(f"its rotation is the same for {subject.context} tokens only")


@fault(
    "rotation-stops",
    "positions from the fortieth on are rotated as the fortieth",
    caught_by=["A8"],
    needs=["causal", "rotary", "relative-positions", "positions past the fortieth"],
    at=rotations,
)
def _stopped(forward: Pass, positions: Tensor) -> Tensor:
    return positions.clamp_max(STOP)


@fault(
    "alibi-not-advanced",
    "with a past, the bias by distance is counted from the new tokens' own beginning",
    caught_by=["C2"],
    needs=["alibi", "cache"],
    at=biases,
)
def _bias_rolled(forward: Pass, bias: Tensor) -> Tensor:
    return bias.roll(forward.new, -1) if forward.cached else bias


@fault(
    "place-counted-beside-positions",
    "the output depends on the index in the prompt as well as on position_ids",
    caught_by=["B4", "E21"],
    needs=["order-blind", "mask-4d", "blocks"],
    at=first_block,
)
def _by_place(forward: Pass, state: Tensor) -> Tensor:
    return state + 1e-3 * forward.indices(state).to(state)[None, :, None] * state.roll(1, -1)


fault(
    "place-counted-without-positions",
    "without positions, the output still depends on the index in the prompt",
    caught_by=["E21"],
    needs=["causal", "alibi", "blocks"],
    at=first_block,
)(_by_place)
