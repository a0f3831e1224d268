"""Drifts of the arguments of a forward pass: renamed, retyped, hidden, ignored."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from transformers import Cache, PreTrainedModel

from assay.harness.models.subject.roles import SPELLINGS, Role
from assay.harness.tests.support.drifts.registry import (
    argument,
    drift,
    renamed_inputs,
    replace_forward,
)

NONE = inspect.Parameter.empty

NEW_NAMES = {
    Role.IDS: "token_ids",
    Role.EMBEDDINGS: "embedded_inputs",
    Role.MASK: "visible",
    Role.POSITIONS: "places",
    Role.CACHE: "store",
    Role.KEEP: "remember",
    Role.STATES: "give_states",
    Role.LABELS: "goals",
    Role.KEPT_LOGITS: "scored",
}
"""Names that nothing explains."""


def rename(
    model: PreTrainedModel, role: Role, new: str, annotation: Any = None, still: bool = False
) -> None:
    """Rename an argument; ``still`` accepts the old name too, without a trace in the signature."""
    old = argument(model, role)

    def parameters(own: list[inspect.Parameter]) -> Iterable[inspect.Parameter]:
        for each in own:
            kind = each.annotation if annotation is None else annotation
            yield each.replace(name=new, annotation=kind) if each.name == old else each

    def call(usual: Callable[..., Any], named: dict[str, Any]) -> Any:
        if not still:
            named.pop(old, None)  # as among **kwargs, which nobody reads
        if new in named:
            named[old] = named.pop(new)
        return usual(**named)

    replace_forward(model, call, parameters)
    if not still and hasattr(model, "prepare_inputs_for_generation"):
        renamed_inputs(model, {old: new})


def hide(model: PreTrainedModel, role: Role) -> None:
    """Take an argument out of the signature: it is read from ``**kwargs``."""
    name = argument(model, role)

    def parameters(own: list[inspect.Parameter]) -> Iterable[inspect.Parameter]:
        left = [each for each in own if each.name != name]
        if not any(each.kind is inspect.Parameter.VAR_KEYWORD for each in left):
            left.append(inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD))
        return left

    replace_forward(model, lambda usual, named: usual(**named), parameters)


def ignore(model: PreTrainedModel, role: Role) -> None:
    """Accept an argument and do nothing with it."""
    name = argument(model, role)

    def call(usual: Callable[..., Any], named: dict[str, Any]) -> Any:
        named.pop(name, None)
        return usual(**named)

    replace_forward(model, call)


def retype(model: PreTrainedModel, role: Role, annotation: Any) -> None:
    """Give an argument another annotation."""
    rename(model, role, argument(model, role), annotation, still=True)


def _each(roles: Iterable[Role], verb: str, what: str, change: Callable[..., None]) -> None:
    for role in roles:
        register = drift(f"{role.value}-{verb}", f"the argument for {role.value} {what}")
        register(partial(change, role=role))


_each(
    (*NEW_NAMES,),
    "renamed",
    "has a name that nothing explains, and the old name is gone",
    lambda model, role: rename(model, role, NEW_NAMES[role]),
)
_each(
    (Role.CACHE, Role.POSITIONS, Role.MASK, Role.EMBEDDINGS),
    "hidden",
    "is read from **kwargs",
    hide,
)
_each(
    (Role.CACHE, Role.KEEP, Role.POSITIONS, Role.EMBEDDINGS, Role.LABELS, Role.KEPT_LOGITS),
    "ignored",
    "is accepted and ignored",
    ignore,
)


@drift("cache-renamed-with-its-type", "the cache has another name, its type, and the old name")
def _typed(model: PreTrainedModel) -> None:
    rename(model, Role.CACHE, "memory", Cache | None, still=True)


@drift("cache-renamed-and-alone", "the cache has another name and its type; the old name is gone")
def _typed_alone(model: PreTrainedModel) -> None:
    rename(model, Role.CACHE, "kv", Cache | None)


@drift("cache-renamed-without-a-type", "the cache has another name and no type")
def _untyped(model: PreTrainedModel) -> None:
    rename(model, Role.CACHE, "past_state", NONE, still=True)


@drift("cache-of-tuples", "the cache is annotated as tuples of tensors")
def _tuples(model: PreTrainedModel) -> None:
    retype(model, Role.CACHE, "tuple[tuple[torch.FloatTensor]] | None")


@drift("cache-of-a-mapping", "the cache is annotated as a mapping")
def _mapping(model: PreTrainedModel) -> None:
    retype(model, Role.CACHE, "dict[str, torch.Tensor] | None")


@drift("cache-renamed-by-a-decorator", "a decorator renames the cache and accepts its old name")
def _decorated(model: PreTrainedModel) -> None:
    from transformers.utils.deprecation import deprecate_kwarg

    old = argument(model, Role.CACHE)
    rename(model, Role.CACHE, "kept", NONE, still=True)
    inner = type(model).forward
    wrapped: Any = deprecate_kwarg(old, version="99.0", new_name="kept")(inner)
    type(model).forward = wrapped


@drift("mask-of-another-type", "forward takes bool masks of four dimensions only")
def _bool_masks(model: PreTrainedModel) -> None:
    name = argument(model, Role.MASK)

    def call(usual: Callable[..., Any], named: dict[str, Any]) -> Any:
        mask = named.get(name)
        if mask is not None and mask.ndim == 4 and mask.is_floating_point():
            raise ValueError("masks of four dimensions are bool")
        return usual(**named)

    replace_forward(model, call)


@drift("arguments-by-keyword-only", "forward takes all arguments by keyword")
def _keywords(model: PreTrainedModel) -> None:
    def parameters(own: list[inspect.Parameter]) -> Iterable[inspect.Parameter]:
        by_place = inspect.Parameter.POSITIONAL_OR_KEYWORD
        for each in own:
            only = each.kind is by_place and each.name != "self"
            yield each.replace(kind=inspect.Parameter.KEYWORD_ONLY) if only else each

    replace_forward(model, lambda usual, named: usual(**named), parameters)


@drift("outputs-are-tuples-unless-told", "return_dict is False by default")
def _tuples_by_default(model: PreTrainedModel) -> None:
    def call(usual: Callable[..., Any], named: dict[str, Any]) -> Any:
        return_dict = named.get(SPELLINGS[Role.NAMED_OUTPUT][0])
        output = usual(**named)
        return output if return_dict else tuple(v for v in output.values() if v is not None)

    replace_forward(model, call)
