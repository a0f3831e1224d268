"""Finds a model's blocks, and reads their inputs and outputs in a pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from assay.harness.models.machine.shortage import pass_on
from assay.harness.models.subject import compat
from assay.harness.models.subject.lengths import SHORT
from assay.harness.results.errors import Missing

if TYPE_CHECKING:
    from assay.harness.models.subject import Subject


class _Reached(Exception):
    """Raised by a hook to end the forward pass; caught in this module."""


def find(subject: Subject) -> nn.ModuleList:
    """The list of modules that contains the blocks, one for each layer.

    A model that shares one block among its layers has a shorter list.  Raises LookupError where
    there is no such list.
    """
    model: Any = subject.model
    layers = subject.layers
    if compat.is_wrapped(model):
        if model.stack is None:
            raise LookupError(f"{subject.name}: a pass runs no list of blocks")
        return nn.ModuleList(model.stack.children())
    body = model.get_decoder() if subject.is_encoder_decoder else model.base_model
    lists = [m for m in body.modules() if isinstance(m, nn.ModuleList) and len(m)]
    exact = [m for m in lists if len(m) == layers]
    shared = [m for m in lists if len(m) == getattr(subject.config, "num_hidden_groups", -1)]
    run = _run_by_a_pass(subject, exact) if len(exact) > 1 else exact
    for each in (*run, *exact, *shared):
        return each
    raise LookupError(f"{subject.name}: no list of {layers} blocks in {type(body).__name__}")


def _run_by_a_pass(subject: Subject, lists: list[nn.ModuleList]) -> list[nn.ModuleList]:
    """Those of ``lists`` that a prompt's pass calls: not the blocks of an image encoder."""
    called: list[nn.Module] = []
    hooks = [
        module.register_forward_pre_hook(lambda module, _: called.append(module))
        for each in lists
        for module in each
    ]
    try:
        ids = subject.content(torch.arange(SHORT, device=subject.device)[None])
        subject(ids, states=False)
    except (RuntimeError, ValueError, TypeError) as error:
        pass_on(error)
        return []
    finally:
        for hook in hooks:
            hook.remove()
    return [each for each in lists if any(module in called for module in each)]


@contextmanager
def states(subject: Subject) -> Iterator[dict[str, tuple[Tensor, ...]]]:
    """Collect the first block's input and every block's output in the passes within a block.

    Yields an empty mapping, filled as ``hidden_states`` when the pass has ended; it stays empty
    where there are no blocks, or they are not called once each.
    """
    collected: dict[str, tuple[Tensor, ...]] = {}
    calls: list[Any] = []

    def before(module: nn.Module, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        calls.append(inputs[0] if inputs else kwargs.get("hidden_states"))

    def after(module: nn.Module, inputs: tuple[Any, ...], result: Any) -> None:
        calls.append(result[0] if isinstance(result, tuple | list) else result)

    try:
        stack = find(subject)
    except LookupError:
        stack = nn.ModuleList()
    hooks = [block.register_forward_hook(after) for block in stack]
    hooks += [block.register_forward_pre_hook(before, with_kwargs=True) for block in stack[:1]]
    try:
        yield collected
    finally:
        for hook in hooks:
            hook.remove()
    if len(stack) and len(calls) == len(stack) + 1 and all(map(torch.is_tensor, calls)):
        collected["hidden_states"] = tuple(calls)


def output(subject: Subject, depth: int, ids: Tensor | None, **arguments: Any) -> Tensor:
    """The output of block ``depth`` [batch, n, hidden]; for depth 0 the first block's input.

    Runs the model's own forward up to block ``depth``: the later ones do not run.  Raises
    ValueError for a depth beyond the model's, LookupError where the block is never called as a
    module, and `Missing` where its output is not one row for each token.
    """
    find_arguments(subject)
    if not 0 <= depth <= subject.layers:
        raise ValueError(f"{subject.name} has {subject.layers} blocks, not {depth}")
    states: list[Tensor] = []

    def leave(state: Tensor) -> None:
        states.append(state)
        raise _Reached

    calls = 0

    def before(module: nn.Module, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        leave(inputs[0] if inputs else kwargs["hidden_states"])

    def after(module: nn.Module, inputs: tuple[Any, ...], result: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == depth:
            leave(result[0] if isinstance(result, tuple | list) else result)

    if depth == 0:
        hooks = [subject.blocks[0].register_forward_pre_hook(before, with_kwargs=True)]
    else:
        hooks = [block.register_forward_hook(after) for block in subject.blocks]
    try:
        subject(ids, states=False, **arguments)
    except _Reached:
        inputs = ids if ids is not None else arguments["embeddings"]
        return _by_position(states[0], inputs.shape[0], inputs.shape[1], f"block {depth}")
    finally:
        for hook in hooks:
            hook.remove()
    raise LookupError(f"{subject.name}: block {depth} was never run")


def find_arguments(subject: Subject) -> None:
    """Find the arguments that are found by passes, before hooks end a pass early."""
    _ = subject.positions_argument, subject.cache_argument


def _by_position(states: Tensor, batch: int, n: int, what: str) -> Tensor:
    """``states`` if they are [batch, n, features]; some models add rows, streams or axes."""
    if not torch.is_tensor(states) or states.ndim != 3 or states.shape[:2] != (batch, n):
        shape = [*states.shape] if torch.is_tensor(states) else type(states).__name__
        raise Missing(f"{what} gives {shape}, and not a row for each of {batch} × {n} tokens")
    return states
