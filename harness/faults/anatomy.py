"""Finds the parts of a model in which faults are injected, by recording one pass."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from assay.harness.models.capabilities import Missing
from assay.harness.models.subject import Subject, roles
from assay.harness.models.subject.memo import memo
from assay.harness.models.subject.roles import Role

PROBE = 5
"""Tokens in the prompt of the recorded pass."""


@dataclass
class Call:
    """One module's call in the recorded pass."""

    module: nn.Module
    kwargs: dict[str, Any]
    args: tuple[Any, ...]
    output: Any = None


@dataclass
class Trace:
    """Every module's call, in the order in which they began."""

    calls: list[Call] = field(default_factory=list)

    def within(self, part: nn.Module) -> list[Call]:
        """The calls of ``part`` and of its submodules."""
        inside = set(part.modules())
        return [call for call in self.calls if call.module in inside]


@memo
def trace(subject: Subject) -> Trace:
    """One pass over a short prompt, with a cache where there is one."""
    record = Trace()
    hooks = []

    def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        record.calls.append(Call(module, dict(kwargs), args))

    def after(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        call = next(c for c in reversed(record.calls) if c.module is module and c.output is None)
        call.output = output

    for module in subject.model.modules():
        hooks.append(module.register_forward_pre_hook(before, with_kwargs=True))
        hooks.append(module.register_forward_hook(after))
    ids = subject.content(torch.arange(PROBE, device=subject.device)[None] * 7)
    try:
        subject(ids, keep=subject.cache_argument is not None, states=False)
    finally:
        for hook in hooks:
            hook.remove()
    return record


def blocks(subject: Subject) -> list[nn.Module]:
    """The blocks; `Missing` where there is no list of them."""
    try:
        return list(subject.blocks)
    except LookupError as error:
        raise Missing(str(error)) from error


def mixers(subject: Subject) -> list[nn.Module]:
    """The module that mixes positions in each block: its self-attention, or its recurrence.

    The innermost module of a block that takes a mask or a cache; the first where there are
    several, so that in a decoder with an encoder it is the decoder's own.
    """
    modules = []
    for block in blocks(subject):
        takers = [c.module for c in trace(subject).within(block) if _takes_mask_or_cache(c.kwargs)]
        inner = [
            m for m in takers if not any(t is not m and t in set(m.modules()) for t in takers)
        ]
        if inner and inner[0] is not block:
            modules.append(inner[0])
    if not modules:
        raise Missing("no part of a block takes a mask or a cache")
    return list(dict.fromkeys(modules))


def _takes_mask_or_cache(kwargs: dict[str, Any]) -> bool:
    names = (*roles.spellings(Role.CACHE), *roles.spellings(Role.MASK), "layer_past", "mask")
    return any(name in kwargs for name in names)


def projection(subject: Subject, mixer: nn.Module) -> nn.Module:
    """The last matrix that a mixer's output goes through; `Missing` where it has none."""
    calls = trace(subject).within(mixer)
    last = next((c.module for c in reversed(calls) if _is_matrix(c.module)), None)
    if last is None or last is mixer:
        raise Missing("a block's attention has no output projection of its own")
    return last


def _is_matrix(module: nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    return isinstance(weight, Tensor) and weight.ndim == 2 and not list(module.children())


def norms(subject: Subject) -> list[nn.Module]:
    """Modules of the blocks that keep a state's shape and have no matrix: norms."""
    modules = []
    for block in blocks(subject):
        for call in trace(subject).within(block):
            weights = list(call.module.parameters())
            state = call.args[0] if call.args else None
            if not isinstance(state, Tensor) or not isinstance(call.output, Tensor):
                continue
            if not weights or any(w.ndim != 1 for w in weights):
                continue
            if state.shape == call.output.shape and state.shape[-1] == subject.hidden:
                modules.append(call.module)
    if not modules:
        raise Missing("no block has a norm of its own")
    return list(dict.fromkeys(modules))


def angles(subject: Subject) -> list[nn.Module]:
    """Modules that turn positions into the cosines and sines of a rotation."""
    modules = [
        call.module
        for call in trace(subject).calls
        if (roles.name_in(call.kwargs, Role.POSITIONS) or len(call.args) > 1)
        and isinstance(call.output, tuple)
        and len(call.output) == 2
        and all(isinstance(t, Tensor) and t.is_floating_point() for t in call.output)
        and not list(call.module.parameters())
        and bool((call.output[0] ** 2 + call.output[1] ** 2).std() < 1e-3)
    ]
    if not modules:
        raise Missing("no separate module computes rotary angles")
    return list(dict.fromkeys(modules))


def slopes(subject: Subject) -> list[nn.Module]:
    """Modules that take a bias that falls with distance."""
    modules = [c.module for c in trace(subject).calls if isinstance(c.kwargs.get("alibi"), Tensor)]
    if not modules:
        raise Missing("no attention takes a bias by distance (alibi)")
    return list(dict.fromkeys(modules))


def mixtures(subject: Subject) -> list[tuple[nn.Module, nn.Module]]:
    """Mixtures of experts, each with its router.

    A router is a module whose output has the numbers of the tokens' experts: an integer tensor.
    """
    pairs = []
    for block in blocks(subject):
        calls = trace(subject).within(block)
        for call in calls:
            if isinstance(call.output, tuple) and any(_is_choice(part) for part in call.output):
                owner = next(c.module for c in calls if call.module in set(c.module.children()))
                pairs.append((owner, call.module))
    if not pairs:
        raise Missing("nothing is routed to experts")
    return pairs


def _is_choice(part: Any) -> bool:
    return isinstance(part, Tensor) and part.dtype == torch.long and part.ndim == 2


def dropouts(subject: Subject) -> list[nn.Module]:
    """Modules that drop while training: torch's own, and attention with a rate for its weights."""
    modules: list[nn.Module] = [m for m in subject.model.modules() if isinstance(m, nn.Dropout)]
    modules += [m for m in subject.model.modules() if isinstance(_rate(m), float | int)]
    if not modules:
        raise Missing("the model has no dropout")
    return modules


def _rate(module: nn.Module) -> Any:
    return getattr(module, "attention_dropout", None)
