"""Switches the implementation of MoE layers: one expert at a time, or many at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from assay.harness.models.machine.shortage import refusals_ignored
from assay.harness.models.subject import compat
from assay.harness.models.subject.memo import memo
from assay.harness.results.errors import Missing, first_line

if TYPE_CHECKING:
    from assay.harness.models.subject import Subject

IMPLEMENTATION = "_experts_implementation"
"""The setting of a configuration that names how experts are computed."""

NAMED = "batched_mm"
"""An implementation that every device has, in every version with named implementations."""


def switch(model: PreTrainedModel, name: str) -> None:
    """Switch a loaded model to the experts implementation ``name``: possible since 5.0.

    Raises `Missing` before, and the library's error for an implementation that the model lacks.
    """
    if not hasattr(model, "set_experts_implementation"):
        raise Missing("this version of transformers has one implementation of experts")
    model.set_experts_implementation(name)


def functions_by_name() -> Any:
    """The registry of experts implementations by name.

    Raises `Missing` in versions without one: before 5.0.
    """
    try:
        from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS
    except ImportError as error:
        raise Missing("this version of transformers has one implementation of experts") from error
    return ALL_EXPERTS_FUNCTIONS


def in_use(subject: Subject) -> str:
    """The library's name of the subject's experts implementation.

    It is the experts' own: in a model of several parts it may differ from the whole model's.
    """
    parts = [getattr(each, "config", None) for each in modules(subject)]
    config = next(filter(None, parts), subject.model.config)
    return getattr(config, IMPLEMENTATION, None) or "eager"


@contextmanager
def computed_by(subject: Subject, implementation: str) -> Iterator[Subject]:
    """Use another experts implementation within a block."""
    before = compat.settings(subject.model, IMPLEMENTATION)
    try:
        switch(subject.model, implementation)  # may set some parts, then raise
        yield subject
    finally:
        compat.restore(before, IMPLEMENTATION)


@memo
def modules(subject: Subject) -> tuple[nn.Module, ...]:
    """The parts that look up their experts implementation by name; none in most models."""
    heard: list[nn.Module] = []
    # Modules that ran before an error count.
    with refusals_ignored(), _heard_by(heard), computed_by(subject, NAMED):
        subject(_prompt(subject), states=False)
    return tuple(dict.fromkeys(heard))


@contextmanager
def _heard_by(heard: list[nn.Module]) -> Iterator[None]:
    """Add to ``heard`` every module whose experts are computed by `NAMED`."""
    functions = functions_by_name()
    usual = functions[NAMED]

    def listen(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        heard.append(module)
        return usual(module, *args, **kwargs)

    functions.register(NAMED, listen)
    try:
        yield
    finally:
        functions.register(NAMED, usual)


def require(subject: Subject, implementation: str) -> None:
    """Raise `Missing` unless the experts can use ``implementation``, and do not use it already."""
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
        message = first_line(error)
        raise Missing(
            f"the model cannot compute its experts by {implementation}: {message}"
        ) from error
    if not changed:
        raise Missing(f"the model does not compute its experts by {implementation}")


@contextmanager
def sent_on(subject: Subject) -> Iterator[None]:
    """Send each token to the experts after its chosen ones, within a block."""
    with ExitStack() as hooks:
        for module in modules(subject):
            hook = module.register_forward_pre_hook(_next_expert, with_kwargs=True)
            hooks.callback(hook.remove)
        yield


def _next_expert(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    count = _count(module)

    def moved(part: Any) -> Any:
        chosen = isinstance(part, Tensor) and not part.is_floating_point()
        return (part + 1) % count if chosen else part

    return tuple(map(moved, args)), {name: moved(part) for name, part in kwargs.items()}


def _count(module: nn.Module) -> int:
    return next(module.parameters()).shape[0]


def _prompt(subject: Subject) -> Tensor:
    return subject.content(torch.arange(max(3, subject.shortest), device=subject.device)[None])
