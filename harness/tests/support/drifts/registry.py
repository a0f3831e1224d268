"""The registry of drifts, and how a model's forward is replaced."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedModel

from assay.harness.models.subject.roles import Role, bind


class Inapplicable(Exception):
    """The model has nothing that the drift could change."""


@dataclass(frozen=True)
class Drift:
    """A change of the library: ``name``, what it does in words, and the function that makes it.

    ``change(model)`` alters a model in place; raises `Inapplicable`.
    """

    name: str
    what: str
    change: Callable[[PreTrainedModel], None]


DRIFTS: dict[str, Drift] = {}


def drift(
    name: str, what: str
) -> Callable[[Callable[[PreTrainedModel], None]], Callable[[PreTrainedModel], None]]:
    """Register a change under ``name``."""

    def register(change: Callable[[PreTrainedModel], None]) -> Callable[[PreTrainedModel], None]:
        DRIFTS[name] = Drift(name, what, change)
        return change

    return register


def argument(model: PreTrainedModel, role: Role) -> str:
    """The name of a role's argument; raises `Inapplicable` without one."""
    bound = bind(model.forward, type(model).__mro__)
    if role not in bound:
        raise Inapplicable(f"forward has no argument for {role.value}")
    return bound[role]


def subclass(model: PreTrainedModel, **members: Any) -> None:
    """Make the model one of a class like its own, with other members.

    It has the name and the module of its own class, as after a release of the library.
    """
    kind = type(model)
    named = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    model.__class__ = type(kind.__name__, (kind,), {**named, **members})


def replace_forward(
    model: PreTrainedModel,
    call: Callable[[Callable[..., Any], dict[str, Any]], Any],
    parameters: Callable[[list[inspect.Parameter]], Iterable[inspect.Parameter]] = lambda own: own,
) -> None:
    """Replace forward by ``call(usual, arguments by name)``, with other parameters.

    ``parameters`` makes the new signature's from the old ones, ``self`` included.
    """
    usual = type(model).forward
    old = inspect.signature(usual)
    new = old.replace(parameters=list(parameters([*old.parameters.values()])))
    order = [name for name in new.parameters if name != "self"]

    def forward(self: PreTrainedModel, *args: Any, **kwargs: Any) -> Any:
        named = {**dict(zip(order, args, strict=False)), **kwargs}
        return call(lambda **arguments: usual(self, **arguments), named)

    forward.__signature__ = new  # type: ignore[attr-defined]
    subclass(model, forward=forward)


def renamed_inputs(model: PreTrainedModel, names: Mapping[str, str]) -> None:
    """Let `generate` pass arguments by their new names, as the library would after a rename."""
    kind: Any = type(model)
    usual = kind.prepare_inputs_for_generation

    def prepare(self: PreTrainedModel, *args: Any, **kwargs: Any) -> dict[str, Any]:
        inputs = usual(self, *args, **kwargs)
        return {names.get(name, name): value for name, value in inputs.items()}

    subclass(model, prepare_inputs_for_generation=prepare)
