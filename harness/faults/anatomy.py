"""Finds the parts of a model in which faults are injected, by watching one pass."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from assay.harness.models.capabilities import Missing
from assay.harness.models.memo import memo
from assay.harness.models.subject import Subject

PROBE = 5
"""Tokens in the prompt that is watched."""


@dataclass
class Call:
    """One module's call in the pass that was watched."""

    module: nn.Module
    named: dict[str, Any]
    given: tuple[Any, ...]
    output: Any = None


@dataclass
class Watched:
    """Every module's call, in the order in which they began."""

    calls: list[Call] = field(default_factory=list)

    def within(self, part: nn.Module) -> list[Call]:
        """The calls of ``part`` and of what lies in it."""
        inside = set(part.modules())
        return [call for call in self.calls if call.module in inside]


@memo
def watched(subject: Subject) -> Watched:
    """One pass over a short prompt, with a cache where there is one."""
    seen = Watched()
    hooks = []

    def before(module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        seen.calls.append(Call(module, dict(named), given))

    def after(module: nn.Module, given: tuple[Any, ...], output: Any) -> None:
        call = next(c for c in reversed(seen.calls) if c.module is module and c.output is None)
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
    return seen


def blocks(subject: Subject) -> list[nn.Module]:
    """The blocks; `Missing` where there is no list of them."""
    try:
        return list(subject.blocks)
    except LookupError as error:
        raise Missing(str(error)) from error


def mixers(subject: Subject) -> list[nn.Module]:
    """What mixes the places in each block: its self-attention, or its recurrence.

    The innermost module of a block that is handed a mask or a cache; the first where there are
    several, so that of a decoder beside an encoder it is the decoder's own.
    """
    found = []
    for block in blocks(subject):
        takers = [c.module for c in watched(subject).within(block) if _is_told(c.named)]
        inner = [
            m for m in takers if not any(t is not m and t in set(m.modules()) for t in takers)
        ]
        if inner and inner[0] is not block:
            found.append(inner[0])
    if not found:
        raise Missing("no part of a block takes a mask or a cache")
    return list(dict.fromkeys(found))


def _is_told(named: dict[str, Any]) -> bool:
    names = ("past_key_values", "cache_params", "layer_past", "attention_mask", "mask")
    return any(name in named for name in names)


def projection(subject: Subject, mixer: nn.Module) -> nn.Module:
    """The last matrix that a mixer's output goes through; `Missing` where it has none."""
    calls = watched(subject).within(mixer)
    last = next((c.module for c in reversed(calls) if _is_matrix(c.module)), None)
    if last is None or last is mixer:
        raise Missing("a block's attention has no output projection of its own")
    return last


def _is_matrix(module: nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    return isinstance(weight, Tensor) and weight.ndim == 2 and not list(module.children())


def norms(subject: Subject) -> list[nn.Module]:
    """Modules of the blocks that keep a state's shape and have no matrix: norms."""
    found = []
    for block in blocks(subject):
        for call in watched(subject).within(block):
            weights = list(call.module.parameters())
            given = call.given[0] if call.given else None
            if not isinstance(given, Tensor) or not isinstance(call.output, Tensor):
                continue
            if not weights or any(w.ndim != 1 for w in weights):
                continue
            if given.shape == call.output.shape and given.shape[-1] == subject.hidden:
                found.append(call.module)
    if not found:
        raise Missing("no block has a norm of its own")
    return list(dict.fromkeys(found))


def angles(subject: Subject) -> list[nn.Module]:
    """Modules that turn positions into the two tables of a rotation."""
    found = [
        call.module
        for call in watched(subject).calls
        if ("position_ids" in call.named or len(call.given) > 1)
        and isinstance(call.output, tuple)
        and len(call.output) == 2
        and all(isinstance(t, Tensor) and t.is_floating_point() for t in call.output)
        and not list(call.module.parameters())
        and bool((call.output[0] ** 2 + call.output[1] ** 2).std() < 1e-3)
    ]
    if not found:
        raise Missing("no separate module computes rotary angles")
    return list(dict.fromkeys(found))


def slopes(subject: Subject) -> list[nn.Module]:
    """Modules that are handed a bias that falls with distance."""
    found = [c.module for c in watched(subject).calls if isinstance(c.named.get("alibi"), Tensor)]
    if not found:
        raise Missing("no attention takes a bias by distance (alibi)")
    return list(dict.fromkeys(found))


def mixtures(subject: Subject) -> list[tuple[nn.Module, nn.Module]]:
    """Mixtures of experts, each with what routes to them.

    A router is a module whose output tells the tokens' experts: whole numbers among tensors.
    """
    found = []
    for block in blocks(subject):
        calls = watched(subject).within(block)
        for call in calls:
            if isinstance(call.output, tuple) and any(_is_choice(part) for part in call.output):
                owner = next(c.module for c in calls if call.module in set(c.module.children()))
                found.append((owner, call.module))
    if not found:
        raise Missing("nothing is routed to experts")
    return found


def _is_choice(part: Any) -> bool:
    return isinstance(part, Tensor) and part.dtype == torch.long and part.ndim == 2


def dropouts(subject: Subject) -> list[nn.Module]:
    """Modules that drop while training: torch's own, and attention with a rate for its weights."""
    found: list[nn.Module] = [m for m in subject.model.modules() if isinstance(m, nn.Dropout)]
    found += [m for m in subject.model.modules() if isinstance(_rate(m), float | int)]
    if not found:
        raise Missing("the model has no dropout")
    return found


def _rate(module: nn.Module) -> Any:
    return getattr(module, "attention_dropout", None)
