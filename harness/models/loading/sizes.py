"""Sizes in a configuration, compared with the stored tensors before the model is built.

No field is known by name.  The model is built without memory (torch's meta device), which stops
as soon as it needs far more than is stored.  Changing one field at a time finds the wrong one.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as hooks
from transformers import CONFIG_MAPPING, PretrainedConfig

from assay.harness.models.loading.stored import Stored, outermost
from assay.harness.models.machine.shortage import ENDS
from assay.harness.results.errors import BadInput, brief

COUNT = 2**5 * 3 * 5 * 7
"""Numbers above this and above every stored dimension are lowered to it or a multiple: widths
must be divisible among heads."""

MOST = COUNT, 2**22
"""Caps for larger numbers, a first and a second one, until the stored tensors are known: some
configurations build a list with an entry for each layer, and search it for each."""

ROOM_NUMBERS, ROOM_TENSORS = 16, 4
"""How many times the stored size a model may need while it is built: weights that will be tied are
separate at first, and fused ones may be stored separately."""

ROOM_MADE = 2
"""How many times the stored numbers a built model may have: position embeddings need not be
stored."""

TENSORS, NUMBERS, MODULES = 2**9, 2**20, 2**13
"""Allowances for a model of any size, added to these."""

SUSPECTS = 12
"""How many of a configuration's largest numbers are changed, and how many sizes replace each."""

Path = tuple[str | int, ...]
"""Keys and indices that lead to a value in nested objects and arrays."""


class TooLarge(Exception):
    """A model needs far more than is stored."""


@dataclass(frozen=True)
class Outline:
    """The parameters of a model that was built without memory.

    ``shapes`` are by name; ``prefix`` begins the names of the body's parameters in a model with a
    head.
    """

    shapes: dict[str, tuple[int, ...]]
    prefix: str

    def lists(self) -> set[str]:
        """The outermost lists of modules: see `_list_names`."""
        return _list_names(self.shapes, self.prefix)


def configuration(raw: dict[str, Any], spec: str) -> PretrainedConfig:
    """The configuration in ``raw``, its numbers bounded by `MOST`; raises `BadInput`."""
    for most in MOST:
        bounded = _replaced(raw, lambda number, most=most: min(number, most))  # type: ignore[misc]
        try:
            return _built(bounded)
        except ENDS as error:  # whatever a model's own configuration class raises
            failure = error
    message = brief(failure)
    field = _not_positive(raw, [1], _built) or _unusable(raw, _built)
    message += f"; it sets {field}" if field and field.split()[0] not in message else ""
    message += f"; numbers above {most} count as that" if str(most) in message else ""
    raise BadInput(f"{spec}: config.json cannot be used ({message})") from failure


def check(raw: dict[str, Any], auto: type[Any], stored: Stored, spec: str) -> Outline | None:
    """The model's outline; raises `BadInput` where it is far from the ``stored`` tensors in size.

    ``raw`` is the content of config.json and ``auto`` the transformers class that will load the
    model.  One that cannot be built on the meta device has no outline: loading it says why.
    """
    comparison = _Comparison(raw, auto, stored)
    outline = None
    try:
        outline = comparison.outline(raw)
    except TooLarge:
        fault = comparison.too_large() or "describes a larger model; sizes left out have defaults"
    except ENDS:  # whatever a model's own code raises
        fault = comparison.not_positive(outline)
    else:
        fault = comparison.not_positive(outline)
    if fault:
        fault = fault if fault.startswith("describes") else f"sets {fault}"
        raise BadInput(
            f"{spec}: config.json {fault}; its weights hold {stored}: they are of different models"
        )
    return outline


def unusable(raw: dict[str, Any], auto: type[Any], stored: Stored) -> str:
    """The field of config.json, ``raw``, that keeps a model from being made; or empty."""
    comparison = _Comparison(raw, auto, stored)
    try:
        comparison.outline(raw)
    except ENDS:
        return _unusable(raw, comparison.outline)
    return ""


@dataclass(frozen=True)
class _Comparison:
    """The content of config.json, the class that it configures, and the stored tensors."""

    raw: dict[str, Any]
    auto: type[Any]
    stored: Stored

    def outline(self, raw: dict[str, Any]) -> Outline:
        """The outline of the model that ``raw`` describes; raises `TooLarge` or its error."""
        lowered = _Lowered(self.stored)
        config = _built(_replaced(raw, lowered))
        make = getattr(self.auto, "from_config", self.auto)
        with (
            torch.random.fork_rng(devices=[]),
            torch.device("meta"),
            _limited(self.stored, lowered),
        ):
            model = make(config)
        numbers = sum(lowered.numbers(p.shape) for p in model.parameters())
        if numbers > _limit(self.stored, ROOM_MADE):
            raise TooLarge
        shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
        return Outline(shapes, model.base_model_prefix)

    def too_large(self) -> str:
        """The field that makes the model too large, and its value."""
        usual = sorted({n for t in self.stored.tensors.values() for n in t.shape})
        largest = sorted(_whole_numbers(self.raw), key=lambda item: -item[1])
        for path, value in largest[:SUSPECTS]:
            for smaller in (1, *usual[:SUSPECTS]):
                try:
                    self.outline(_changed(self.raw, path, smaller))
                except TooLarge:
                    break
                except ENDS:  # it does not fit the other sizes
                    continue
                return _field(path, value)
        return ""

    def not_positive(self, outline: Outline | None) -> str:
        """The field of at most 0 that hides stored tensors or keeps the model from being built.

        A field hides stored tensors if changing it adds a list of modules that ``outline`` lacks.
        """
        if outline is None:
            return _not_positive(self.raw, [1, *self.stored.lists.values()], self.outline)
        lacking = _list_names(self.stored.tensors, outline.prefix) - outline.lists()

        def shows(raw: dict[str, Any]) -> None:
            if not self.outline(raw).lists() & lacking:
                raise LookupError

        return _not_positive(self.raw, self.stored.lists.values(), shows) if lacking else ""


def _built(raw: dict[str, Any]) -> PretrainedConfig:
    return CONFIG_MAPPING[raw["model_type"]].from_dict(raw)


class _Lowered:
    """Replaces large numbers by small ones, and recognises dimensions by them."""

    def __init__(self, stored: Stored) -> None:
        dimensions = {n for tensor in stored.tensors.values() for n in tensor.shape if n}
        self.most = max(COUNT, stored.widest)
        self.fresh = (n for n in itertools.count(COUNT, COUNT) if all(d % n for d in dimensions))
        self.small: dict[int, int] = {}

    def __call__(self, number: int) -> int:
        """``number``, or the small one for it if it is above every stored dimension."""
        if number <= self.most:
            return number
        if number not in self.small:
            self.small[number] = next(self.fresh)
        return self.small[number]

    def numbers(self, shape: Iterable[int]) -> int:
        """The number of elements of a tensor of this shape before its sizes were lowered."""
        return math.prod(map(self._dimension, shape))

    def _dimension(self, lowered: int) -> int:
        for large, small in self.small.items():
            if lowered and lowered % small == 0:
                return lowered // small * large
        return lowered


def _replaced(content: Any, by: Callable[[int], int]) -> Any:
    """A copy of a configuration with its integers replaced."""
    if isinstance(content, dict):
        return {key: _replaced(value, by) for key, value in content.items()}
    if isinstance(content, list):
        return [_replaced(value, by) for value in content]
    return by(content) if type(content) is int else content


def _limit(stored: Stored, room: int) -> int:
    return room * stored.parameters + NUMBERS


@contextmanager
def _limited(stored: Stored, lowered: _Lowered) -> Iterator[None]:
    """Raise `TooLarge` within a constructor that far exceeds the stored tensors."""
    tensors = ROOM_TENSORS * len(stored.tensors)
    parameters: dict[int, nn.Parameter] = {}
    numbers = modules = 0

    def on_parameter(_module: nn.Module, _name: str, parameter: nn.Parameter | None) -> None:
        nonlocal numbers
        if parameter is None or id(parameter) in parameters:
            return
        parameters[id(parameter)] = parameter  # keeps its id from being reused
        numbers += lowered.numbers(parameter.shape)
        if len(parameters) > tensors + TENSORS or numbers > _limit(stored, ROOM_NUMBERS):
            raise TooLarge

    def on_module(_module: nn.Module, _name: str, _part: nn.Module | None) -> None:
        nonlocal modules
        modules += 1
        if modules > tensors + MODULES:
            raise TooLarge

    handles = (
        hooks.register_module_parameter_registration_hook(on_parameter),
        hooks.register_module_module_registration_hook(on_module),
    )
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _list_names(tensors: Iterable[str], prefix: str) -> set[str]:
    """The outermost lists that contain tensors, by path and by last name.

    ``prefix`` is removed, since a body's tensors may be saved with or without it.
    """
    paths = {name.removeprefix(f"{prefix}.") for name, _ in outermost(tensors)}
    return paths | {path.rpartition(".")[2] for path in paths}


def _not_positive(
    raw: dict[str, Any], values: Iterable[int], works: Callable[[dict[str, Any]], object]
) -> str:
    """The field of at most 0 in whose place one of ``values`` works without raising."""
    for path, value in _whole_numbers(raw):
        for number in sorted(set(values)) if value <= 0 else ():
            try:
                works(_changed(raw, path, number))
            except ENDS:  # whatever a model's own code raises
                continue
            return _field(path, value)
    return ""


def _unusable(raw: dict[str, Any], works: Callable[[dict[str, Any]], object]) -> str:
    """The field without which ``raw`` works, where it does not with it; empty if there is none."""
    for name in [name for name in raw if name != "model_type"]:
        try:
            works({other: value for other, value in raw.items() if other != name})
        except ENDS:  # another field is the cause, or this one is required
            continue
        return _field((name,), raw[name])
    return ""


def _whole_numbers(content: Any, path: Path = ()) -> Iterator[tuple[Path, int]]:
    """Every integer in nested objects and arrays, with its path."""
    if type(content) is int:
        yield path, content
    elif isinstance(content, dict | list):
        for key, value in content.items() if isinstance(content, dict) else enumerate(content):
            yield from _whole_numbers(value, (*path, key))


def _changed(raw: dict[str, Any], path: Path, value: int) -> dict[str, Any]:
    """A copy of a configuration with another value at ``path``."""
    changed = copy.deepcopy(raw)
    holder: Any = changed
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    return changed


def _field(path: Path, value: object) -> str:
    return f"{'.'.join(map(str, path))} to {str(value)[:40]}"
