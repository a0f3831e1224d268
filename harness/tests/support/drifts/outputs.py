"""Drifts of what a forward pass returns: renamed, missing, None, a tuple."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transformers import PreTrainedModel

from assay.harness.models.subject.roles import SPELLINGS, Role
from assay.harness.tests.support.drifts.registry import (
    Inapplicable,
    argument,
    drift,
    replace_forward,
)

CACHES = SPELLINGS[Role.CACHE]


def change_output(model: PreTrainedModel, change: Callable[[dict[str, Any]], Any]) -> None:
    """``change(output as a plain dict)`` returns another output."""
    replace_forward(model, lambda usual, named: change(dict(usual(**named))))


def _rename(output: dict[str, Any], names: tuple[str, ...], new: str | None) -> dict[str, Any]:
    others = {name: value for name, value in output.items() if name not in names}
    values = [output[name] for name in names if output.get(name) is not None]
    return others if new is None or not values else {**others, new: values[0]}


class Attributes(dict):  # type: ignore[type-arg]
    """A mapping whose values are attributes, as an output of the library."""

    def __getattr__(self, name: str) -> Any:
        return self.get(name)


def _output(name: str, what: str, names: tuple[str, ...], new: str | None) -> None:
    @drift(name, what)
    def change(model: PreTrainedModel) -> None:
        if names is CACHES:
            argument(model, Role.CACHE)
        change_output(model, lambda output: Attributes(_rename(output, names, new)))


_output("returned-cache-renamed", "the output has its cache by another name", CACHES, "kept_past")
_output("returned-cache-missing", "the output has no cache", CACHES, None)
_output("logits-renamed", "the output has its logits by another name", ("logits",), "scores")
_output("logits-missing", "the output has no logits", ("logits",), None)
_output("loss-missing", "the output has no loss", ("loss",), None)


@drift("logits-none", "the logits are None")
def _no_logits(model: PreTrainedModel) -> None:
    change_output(model, lambda output: Attributes({**output, "logits": None}))


@drift("states-missing", "the output has no hidden states")
def _no_states(model: PreTrainedModel) -> None:
    names = ("hidden_states", "decoder_hidden_states")
    change_output(model, lambda output: Attributes(_rename(output, names, None)))


@drift("output-a-tuple", "the output is a tuple, whatever is asked for")
def _tuple(model: PreTrainedModel) -> None:
    change_output(model, lambda output: tuple(v for v in output.values() if v is not None))


@drift("returned-cache-of-tuples", "the returned cache is a tuple of keys and values")
def _tuples(model: PreTrainedModel) -> None:
    argument(model, Role.CACHE)

    def change(output: dict[str, Any]) -> Any:
        name = next((name for name in CACHES if output.get(name) is not None), None)
        layers = getattr(output.get(name or ""), "layers", None)
        if name is None or layers is None:
            return Attributes(output)
        pairs = tuple((getattr(x, "keys", None), getattr(x, "values", None)) for x in layers)
        return Attributes({**output, name: pairs})

    if not hasattr(model, "generate"):
        raise Inapplicable("the model does not generate")
    change_output(model, change)
