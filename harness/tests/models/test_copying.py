"""A copy computes with its own weights, whatever was patched into the model that it is of."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch
from torch import nn

from assay.harness.models.reference.copying import copy_model

LAYER = nn.Linear(2, 2)
USUAL = LAYER.forward


def by_global(x: torch.Tensor) -> torch.Tensor:
    return USUAL(x)


def wrapped(layer: nn.Module) -> None:
    usual = layer.forward

    @functools.wraps(usual)
    def forward(x: torch.Tensor) -> torch.Tensor:
        return usual(x)

    layer.forward = forward


def in_a_partial(layer: nn.Module) -> None:
    layer.forward = functools.partial(lambda usual, x: usual(x), layer.forward)


def hooked(layer: nn.Module) -> None:
    layer.register_forward_hook(
        lambda module, args, output: nn.functional.linear(*args, layer.weight)
    )


def recursive(layer: nn.Module) -> None:
    usual = layer.forward

    def forward(x: torch.Tensor, again: bool = True) -> torch.Tensor:
        return forward(x, again=False) if again else usual(x)

    layer.forward = forward


def with_empty_cell(layer: nn.Module) -> None:
    usual = layer.forward

    def forward(x: torch.Tensor) -> torch.Tensor:
        return never if x is None else usual(x)  # noqa: F821

    never = None
    del never
    layer.forward = forward


def by_default(layer: nn.Module) -> None:
    layer.forward = lambda x, usual=layer.forward: usual(x)


@pytest.mark.parametrize(
    "patch",
    [wrapped, in_a_partial, hooked, recursive, with_empty_cell, by_default],
)
def test_what_is_patched_into_a_model_runs_the_copys_weights(
    patch: Callable[[nn.Module], None],
) -> None:
    layer = nn.Linear(2, 2)
    patch(layer)
    check(layer)


def test_what_a_patch_uses_by_a_global_name_is_the_copys() -> None:
    LAYER.forward = by_global  # type: ignore[method-assign]
    check(LAYER)
    assert by_global.__globals__["USUAL"] is USUAL


def check(layer: nn.Linear) -> None:
    x = torch.ones(1, 2)
    before = layer(x)
    other = copy_model(layer)
    with torch.no_grad():
        other.weight.zero_()
        other.bias.zero_()
    assert torch.equal(other(x), torch.zeros(1, 2))
    assert torch.equal(layer(x), before)
    assert other.double()(x.double()).dtype == torch.float64


def test_functions_that_hold_nothing_of_the_model_stay() -> None:
    layer, calls = nn.Linear(2, 2), []
    layer.register_forward_hook(lambda *_: calls.append(1))
    layer.extra = len  # type: ignore[assignment]
    other = copy_model(layer)
    other(torch.ones(1, 2))
    assert calls == [1]
    assert other.extra is len
