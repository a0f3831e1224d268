"""Switches the implementation of a mixture of experts: one expert at a time, or many at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from assay.harness.models import compat
from assay.harness.models.memo import memo
from assay.harness.models.shortage import refusals_ignored
from assay.harness.models.subject import Subject
from assay.harness.results.errors import Missing, first_line

NAMED = "batched_mm"
"""A way that every version has which has any by name, and every device."""


def in_use(subject: Subject) -> str:
    """The way in which the subject's experts are computed, by the library's name for it.

    The experts' own: a model of several parts may have told them otherwise than the whole.
    """
    parts = [getattr(each, "config", None) for each in modules(subject)]
    config = next(filter(None, parts), subject.model.config)
    return getattr(config, compat.EXPERTS, None) or "eager"


@contextmanager
def computed_by(subject: Subject, implementation: str) -> Iterator[Subject]:
    """The subject with its experts computed in another way, for the length of a block."""
    before = compat.settings(subject.model, compat.EXPERTS)
    try:
        compat.set_experts(subject.model, implementation)  # refused, it may be set in part
        yield subject
    finally:
        compat.restore(before, compat.EXPERTS)


@memo
def modules(subject: Subject) -> tuple[nn.Module, ...]:
    """The parts that look up by name how to compute their experts; none in most models."""
    heard: list[nn.Module] = []
    # What was heard before it broke counts.
    with refusals_ignored(), _heard_by(heard), computed_by(subject, NAMED):
        subject(_prompt(subject), states=False)
    return tuple(dict.fromkeys(heard))


@contextmanager
def _heard_by(heard: list[nn.Module]) -> Iterator[None]:
    """Add to ``heard`` every module whose experts are computed by `NAMED`."""
    table = compat.experts_functions()
    usual = table[NAMED]

    def listen(module: nn.Module, *given: Any, **named: Any) -> Any:
        heard.append(module)
        return usual(module, *given, **named)

    table.register(NAMED, listen)
    try:
        yield
    finally:
        table.register(NAMED, usual)


def require(subject: Subject, implementation: str) -> None:
    """Raise `Missing` unless experts can be computed by another ``implementation`` than usual."""
    if not modules(subject):
        raise Missing("no layer looks up by name how to compute its experts")
    if all(_count(module) == 1 for module in modules(subject)):
        raise Missing("a layer has one expert: no other can be computed in its place")
    if implementation == in_use(subject):
        raise Missing(f"{implementation} is the implementation that the model already uses")
    try:
        with computed_by(subject, implementation):
            changed = in_use(subject) == implementation
    except (ValueError, ImportError, NotImplementedError) as error:
        said = first_line(error)
        raise Missing(
            f"the model cannot compute its experts by {implementation}: {said}"
        ) from error
    if not changed:
        raise Missing(f"the model does not compute its experts by {implementation}")


@contextmanager
def sent_on(subject: Subject) -> Iterator[None]:
    """Each token sent to the expert after each that was chosen, for the length of a block."""
    with ExitStack() as hooks:
        for module in modules(subject):
            hook = module.register_forward_pre_hook(_next_expert, with_kwargs=True)
            hooks.callback(hook.remove)
        yield


def _next_expert(
    module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    count = _count(module)

    def moved(part: Any) -> Any:
        chosen = isinstance(part, Tensor) and not part.is_floating_point()
        return (part + 1) % count if chosen else part

    return tuple(map(moved, given)), {name: moved(part) for name, part in named.items()}


def _count(module: nn.Module) -> int:
    return next(module.parameters()).shape[0]


def _prompt(subject: Subject) -> Tensor:
    return subject.content(torch.arange(max(3, subject.shortest), device=subject.device)[None])
