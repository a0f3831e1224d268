"""Faults of other stored states: recurrences, convolutions, an encoder's states, leftovers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from assay.harness.faults.bed import Bed
from assay.harness.faults.calls import Pass
from assay.harness.faults.catalogue import fault
from assay.harness.faults.spots import first_block
from assay.harness.models.subject.roles import Role


@fault(
    "state-lost-in-chunks",
    "where several tokens come at once, a recurrence starts from zero",
    caught_by=["C2"],
    needs=["recurrence"],
    at=Bed.arguments,
)
def _lost_in_chunks(forward: Pass, kwargs: dict[str, Any]) -> None:
    if forward.cached and forward.new > 1:
        for state in _recurrent_states(forward.cache):
            state.zero_()


def _recurrent_states(cache: Any) -> list[Tensor]:
    layers = getattr(cache, "layers", ())
    states = [s for layer in layers for s in getattr(layer, "recurrent_states", {}).values()]
    return [state for state in states if isinstance(state, Tensor)]


@fault(
    "state-decays-between-calls",
    "a recurrent state loses a ten-thousandth with every cached call",
    caught_by=["C2"],
    needs=["recurrence"],
    at=Bed.arguments,
)
def _decays(forward: Pass, kwargs: dict[str, Any]) -> None:
    if forward.cached:
        for state in _recurrent_states(forward.cache):
            state.mul_(1 - 1e-4)


@fault(
    "state-rows-swapped",
    "the rows of a batch continue from each other's recurrent state",
    caught_by=["C2"],
    needs=["recurrence"],
    at=Bed.arguments,
)
def _states_swapped(forward: Pass, kwargs: dict[str, Any]) -> None:
    if forward.cached:
        for state in _recurrent_states(forward.cache):
            state.copy_(state.flip(0).clone())


@fault(
    "convolution-stale",
    "the last inputs that a recurrence keeps for its convolution are one token old",
    caught_by=["C2"],
    needs=["recurrence"],
    at=Bed.arguments,
)
def _stale_convolution(forward: Pass, kwargs: dict[str, Any]) -> None:
    if not forward.cached:
        return
    for layer in getattr(forward.cache, "layers", ()):
        for state in getattr(layer, "conv_states", {}).values():
            if isinstance(state, Tensor) and state.shape[-1] > 1:
                state.copy_(state.roll(1, -1))


@fault(
    "state-carried-over",
    "something of the last call's states gets into the next call",
    caught_by=["C6"],
    needs=["blocks"],
    at=first_block,
)
def _carried_over(forward: Pass, state: Tensor) -> Tensor:
    before = forward.notes.get("state")
    forward.notes["state"] = state.detach().mean(dim=(0, 1))
    return state if before is None else state + 0.01 * before.to(state)


@fault(
    "encoder-stale-for-a-second-prompt",
    "with a cache, a later prompt is answered by the first one's encoding, as far as that reaches",
    caught_by=["C4", "C2"],
    needs=["encoder", "cache", "generation"],
    at=Bed.arguments,
)
def _stale_encoding(forward: Pass, kwargs: dict[str, Any]) -> None:
    name = forward.name(kwargs, Role.ENCODED)
    if name is None or not kwargs.get(forward.bound[Role.KEEP]):
        return
    encoded = kwargs[name]
    state = encoded[0]
    first = forward.notes.setdefault("encoded", state[:1].clone())
    both = min(state.shape[1], first.shape[1])
    mixed = torch.cat([first[:, :both].expand(len(state), -1, -1), state[:, both:]], dim=1)
    kwargs[name] = (mixed.to(state),)


@fault(
    "encoder-mask-ignored",
    "padding in an encoder's prompt is seen by the decoder, once there is a cache",
    caught_by=["C5"],
    needs=["encoder", "cache"],
    at=Bed.arguments,
)
def _encoder_unmasked(forward: Pass, kwargs: dict[str, Any]) -> None:
    name = forward.bound[Role.ENCODER_MASK]
    mask = kwargs.get(name)
    if isinstance(mask, Tensor) and mask.ndim == 2:
        kwargs[name] = torch.ones_like(mask)
