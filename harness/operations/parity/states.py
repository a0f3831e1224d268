"""The rows of both models: logits, and the outputs of the blocks, also rounded otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from assay.harness.models.subject import Subject, blocks, encoders, passes
from assay.harness.models.subject.roles import Role
from assay.harness.models.subject.rows import Rows
from assay.harness.models.subject.wrapped import Wrapped

STATE, OUTPUTS = "state ", ("logits", "output")
"""Names of rows: of the blocks' outputs, numbered, and of the model's."""


HOOKS, RETURNED, NONE = "hooks", "returned", "none"
WAYS = {
    HOOKS: "the output of each block",
    RETURNED: "the hidden states that the models return",
    NONE: "no hidden states",
}
"""How the outputs of the blocks are taken, in words."""


def block_names(subject: Subject) -> list[str]:
    """The names of the blocks' modules, in order; empty where there is no list of blocks."""
    try:
        stack = list(blocks.find(subject))
    except LookupError:
        return []
    names = {id(module): name for name, module in subject.model.named_modules()}
    return [own_name(subject, names.get(id(block), "")) for block in stack]


def own_name(subject: Subject, name: str) -> str:
    """A module's name as its owner knows it: without that of what wraps the model."""
    if isinstance(subject.model, Wrapped):
        return name.removeprefix("inner.").removeprefix("held.0.")
    return name


def rows(subject: Subject, ids: Tensor, states: str) -> Rows:
    """The rows of a pass over ``ids`` [batch, n], on the CPU: logits, or the last states without.

    And the outputs of the blocks, ``state 0`` being what the first one gets: ``hooks`` takes them
    at the blocks, ``returned`` those that the model returns, and ``none`` takes none.
    """
    batch, n = ids.shape
    hooked = blocks.states(subject) if states == HOOKS else None
    with torch.random.fork_rng(devices=[]), hooked or nullcontext({}) as hidden:
        torch.manual_seed(0)  # some models hash or sample
        prompt: dict[str, Any] = {}
        if subject.is_encoder_decoder:  # run here, so that its modules are seen too
            prompt[Role.ENCODED] = encoders.encoded(subject, batch)
        found = subject.rows(ids.to(subject.device), states=states == RETURNED, **prompt)
    taken = dict(found.tensors)
    for k, state in enumerate(hidden.get("hidden_states", ())):
        taken[f"{STATE}{k}"] = state
    named = {name: t for name, t in taken.items() if t.ndim == 3 and t.shape[:2] == (batch, n)}
    order = sorted(named, key=lambda name: (not name.startswith(STATE), _number(name)))
    return Rows({name: named[name].detach().cpu() for name in order})


def _number(name: str) -> int:
    return int(name.removeprefix(STATE)) if name.startswith(STATE) else -1


def is_one_class(one: Subject, other: Subject) -> bool:
    """Whether both models are of one class, or of one function's making."""
    kinds = {(type(each.model), getattr(each.model.config, "inner", "")) for each in (one, other)}
    return len(kinds) == 1


def common_states(one: Subject, other: Subject, ids: Tensor) -> tuple[str, str]:
    """How to take the blocks' outputs of both models (`WAYS`), and why not, where there are none.

    Those that models return count only where both are of one class: one may return the last
    state before its final norm and the other after it.
    """
    why = "a model's blocks are no list of modules, or not called once each"
    for way in (HOOKS, RETURNED):
        if way == RETURNED:
            if not is_one_class(one, other):
                continue
            if not (passes.returns_states(one) and passes.returns_states(other)):
                continue
        mine, theirs = (_states(rows(each, ids, way)) for each in (one, other))
        if not mine or not theirs:
            continue
        if mine != theirs:
            why = f"the models have {len(mine) - 1} and {len(theirs) - 1} blocks"
            if len(mine) == len(theirs):
                why = "the models' blocks differ in width"
            continue
        return way, ""
    return NONE, why


def _states(found: Rows) -> list[tuple[str, int]]:
    return [(n, t.shape[-1]) for n, t in found.tensors.items() if n.startswith(STATE)]


@contextmanager
def rounding_to(subject: Subject, dtype: torch.dtype) -> Iterator[None]:
    """Within a block every module's output is rounded to ``dtype``, and goes on in its own."""

    def rounded(value: Any) -> Any:
        if torch.is_tensor(value) and value.is_floating_point():
            return value.to(dtype).to(value.dtype)
        if type(value) is tuple:
            return tuple(map(rounded, value))
        return value

    hooks = [
        module.register_forward_hook(lambda module, inputs, result: rounded(result))
        for module in subject.model.modules()
        if module is not subject.model
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def moved_tables(subject: Subject, dtype: torch.dtype) -> Iterator[None]:
    """Within a block every other number of the buffers is a unit of ``dtype`` nearer to 0.

    Tables, as of rotary frequencies, come out so by another formula; at far positions that moves
    angles by more than rounding does.
    """
    tables = [each for each in subject.model.buffers() if each.is_floating_point()]
    before = [each.clone() for each in tables]
    try:
        for each in tables:
            odd = torch.arange(each.numel(), device=each.device).view(each.shape) % 2
            each.mul_(1 - torch.finfo(dtype).eps * odd.to(each.dtype))
        yield
    finally:
        for each, values in zip(tables, before, strict=True):
            each.copy_(values)
