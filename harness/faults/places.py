"""Faults of positions: learned, rotated, or by distance."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from harness.faults import anatomy
from harness.faults.bed import Bed, Pass
from harness.faults.catalogue import fault
from harness.positions import first_position, position_table

CACHED = ["causal", "cache", "position-ids"]


@fault(
    "positions-not-advanced",
    "with a past, positions begin at zero again",
    caught_by=["C2"],
    needs=CACHED,
)
def _(bed: Bed) -> None:
    bed.named(_from_zero)


def _from_zero(seen: Pass, model: nn.Module, named: dict) -> None:
    if seen.cached:
        place = torch.arange(seen.new, device=_given(named).device)
        named[seen.positions_name] = place[None].expand(seen.rows, -1)


def _given(named: dict) -> Tensor:
    for name in ("input_ids", "decoder_input_ids", "inputs_embeds", "decoder_inputs_embeds"):
        if isinstance(named.get(name), Tensor):
            return named[name]
    raise ValueError("neither ids nor embeddings were given")


@fault(
    "positions-doubled-when-cached",
    "with a past, the new tokens' positions are twice what they should be",
    caught_by=["C2"],
    needs=CACHED,
)
def _(bed: Bed) -> None:
    bed.named(_doubled)
    bed.set(bed.model, "_planted_places", bed.subject.context or 0)


def _doubled(seen: Pass, model: Any, named: dict) -> None:
    if seen.cached:
        place = 2 * seen.places(_given(named))
        if model._planted_places:
            place = place.clamp_max(model._planted_places - 1)
        named[seen.positions_name] = place[None].expand(seen.rows, -1)


@fault(
    "explicit-positions-off-by-one",
    "positions that are given count from one, those that are not from zero",
    caught_by=["A7", "C5"],
    needs=["position-ids", "learned-positions"],
)
def _(bed: Bed) -> None:
    bed.named(_one_more)
    table = position_table(bed.subject)
    rows = len(table.weight) if table is not None else 0
    bed.set(bed.model, "_planted_rows", rows - first_position(bed.subject))


def _one_more(seen: Pass, model: Any, named: dict) -> None:
    if seen.positions is not None:
        named[seen.positions_name] = (seen.positions + 1) % model._planted_rows


@fault(
    "explicit-positions-off-by-one-when-cached",
    "positions that are given beside a cache are taken for the ones before",
    caught_by=["A7", "C5"],
    needs=CACHED,
)
def _(bed: Bed) -> None:
    bed.named(_one_less_when_cached)


def _one_less_when_cached(seen: Pass, model: nn.Module, named: dict) -> None:
    if seen.cached and seen.positions is not None:
        named[seen.positions_name] = seen.positions - 1


@fault(
    "explicit-positions-ignored-when-cached",
    "positions that are given with a cache are counted from the cache instead",
    caught_by=["C2", "C5"],
    needs=[*CACHED, "padding"],
)
def _(bed: Bed) -> None:
    bed.named(_ignored_when_cached)


def _ignored_when_cached(seen: Pass, model: nn.Module, named: dict) -> None:
    if seen.cached and seen.positions is not None:
        named[seen.positions_name] = seen.places(seen.positions)[None].expand(seen.rows, -1)


@fault(
    "rotation-scaled-when-cached",
    "with a past, the angles of the new tokens are a hundredth larger",
    caught_by=["C2"],
    needs=[*CACHED, "rotary"],
)
def _(bed: Bed) -> None:
    for module in anatomy.angles(bed.subject):
        bed.before(module, _angles_changed, inner=_scaled)


@fault(
    "rotation-off-by-one-when-cached",
    "with a past, the new tokens are turned one place too far",
    caught_by=["C2"],
    needs=[*CACHED, "rotary"],
)
def _(bed: Bed) -> None:
    for module in anatomy.angles(bed.subject):
        bed.before(module, _angles_changed, inner=_further)


@fault(
    "rotation-stops",
    "places from the fortieth on are turned as if they were the fortieth",
    caught_by=["A8"],
    needs=["causal", "rotary", "relative-positions"],
)
def _(bed: Bed) -> None:
    for module in anatomy.angles(bed.subject):
        bed.before(module, _angles_changed, inner=_stopped)


def _angles_changed(
    seen: Pass, module: nn.Module, given: tuple, named: dict, inner: Any
) -> tuple[tuple, dict]:
    if "position_ids" in named:
        return given, {**named, "position_ids": inner(seen, named["position_ids"])}
    return (given[0], inner(seen, given[1]), *given[2:]), named


def _scaled(seen: Pass, positions: Tensor) -> Tensor:
    return positions * 1.01 if seen.cached else positions


def _further(seen: Pass, positions: Tensor) -> Tensor:
    return positions + 1 if seen.cached else positions


def _stopped(seen: Pass, positions: Tensor) -> Tensor:
    return positions.clamp_max(40)


@fault(
    "alibi-not-advanced",
    "with a past, the bias by distance is counted from the new tokens' own beginning",
    caught_by=["C2"],
    needs=["alibi", "cache"],
)
def _(bed: Bed) -> None:
    for module in anatomy.slopes(bed.subject):
        bed.before(module, _bias_rolled)


def _bias_rolled(seen: Pass, module: nn.Module, given: tuple, named: dict) -> tuple | None:
    if not seen.cached:
        return None
    return given, {**named, "alibi": named["alibi"].roll(seen.new, -1)}


@fault(
    "place-counted-beside-positions",
    "what comes out depends on the place in the prompt, whatever the position",
    caught_by=["B4", "E21"],
    needs=["order-blind", "mask-4d", "blocks"],
)
def _(bed: Bed) -> None:
    bed.after(anatomy.blocks(bed.subject)[0], _by_place)


@fault(
    "place-counted-without-positions",
    "without positions, what comes out depends on the place in the prompt all the same",
    caught_by=["E21"],
    needs=["causal", "alibi", "blocks"],
)
def _(bed: Bed) -> None:
    bed.after(anatomy.blocks(bed.subject)[0], _by_place)


def _by_place(seen: Pass, module: nn.Module, state: Tensor) -> Tensor:
    return state + 1e-3 * seen.places(state)[None, :, None] * state.roll(1, -1)
