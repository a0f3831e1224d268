"""Sizes in a configuration, compared with the stored tensors before the model is built.

No field is known by name.  The model is built without memory (torch's meta device) and given up
as soon as it asks for far more than is stored; the field at fault is found by changing one at a
time.
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

from assay.harness.models.shortage import ENDS, contained
from assay.harness.models.stored import Stored, outermost
from assay.harness.results.errors import BadInput, brief

COUNT = 2**5 * 3 * 5 * 7
"""Numbers above this and above every stored dimension are lowered to it or a multiple: widths
have to be divided among heads."""

MOST = COUNT, 2**22
"""What larger numbers count as, at first and where that fails, until the stored tensors are known:
some configurations make a list with an entry for each layer, and look it through for each."""

ROOM_NUMBERS, ROOM_TENSORS = 16, 4
"""How many times what is stored a model may ask for while it is being made: weights that are to
be tied are separate at first, and fused ones may be stored apart."""

ROOM_MADE = 2
"""How many times the stored numbers a model may hold that is made: tables of positions need not
be stored."""

TENSORS, NUMBERS, MODULES = 2**9, 2**20, 2**13
"""What a model of any size may have in addition."""

SUSPECTS = 12
"""The largest numbers of a configuration that are changed, and the sizes tried in their place."""

Path = tuple[str | int, ...]
"""Keys and indices that lead to a value in nested objects and arrays."""


class TooLarge(Exception):
    """A model asks for far more than is stored."""


@dataclass(frozen=True)
class Outline:
    """The parameters of a model that was built without memory.

    ``shapes`` are by name; ``prefix`` begins the names of the body's in a model with a head.
    """

    shapes: dict[str, tuple[int, ...]]
    prefix: str

    def lists(self) -> set[str]:
        """The outermost lists of modules: see `_list_names`."""
        return _list_names(self.shapes, self.prefix)


def configuration(raw: dict[str, Any], spec: str) -> PretrainedConfig:
    """The configuration that ``raw`` is of, its numbers bounded by `MOST`; raises `BadInput`."""
    for most in MOST:
        bounded = _replaced(raw, lambda number, most=most: min(number, most))  # type: ignore[misc]
        try:
            return _made(bounded)
        except ENDS as error:  # whatever a model's own configuration class raises
            failure = error
    said = brief(failure)
    field = _not_positive(raw, [1], _made) or _unusable(raw, _made)
    said += f"; it sets {field}" if field and field.split()[0] not in said else ""
    said += f"; numbers above {most} count as that" if str(most) in said else ""
    raise BadInput(f"{spec}: config.json cannot be used ({said})") from failure


def check(raw: dict[str, Any], auto: type[Any], stored: Stored, spec: str) -> Outline | None:
    """The model's outline; raises `BadInput` where it is far from the ``stored`` tensors in size.

    ``raw`` is the content of config.json and ``auto`` the class of transformers that is to load
    the model.  One that cannot be built on the meta device has no outline: loading it says why.
    """
    comparison = _Comparison(raw, auto, stored)
    made = None
    try:
        made = comparison.outline(raw)
    except TooLarge:
        said = comparison.too_large() or "describes a larger model; sizes left out have defaults"
    except ENDS:  # whatever a model's own code raises
        said = comparison.not_positive(made)
    else:
        said = comparison.not_positive(made)
    if said:
        said = said if said.startswith("describes") else f"sets {said}"
        raise BadInput(
            f"{spec}: config.json {said}; its weights hold {stored}: they are of different models"
        )
    return made


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
    """What config.json holds, the class that it is for, and the tensors that are stored."""

    raw: dict[str, Any]
    auto: type[Any]
    stored: Stored

    def outline(self, raw: dict[str, Any]) -> Outline:
        """The outline of the model that ``raw`` describes; raises `TooLarge`, or what it does."""
        lowered = _Lowered(self.stored)
        config = _made(_replaced(raw, lowered))
        make = getattr(self.auto, "from_config", self.auto)
        with (
            torch.random.fork_rng(devices=[]),
            torch.device("meta"),
            _limited(self.stored, lowered),
            contained(),
        ):
            model = make(config)
        numbers = sum(lowered.numbers(p.shape) for p in model.parameters())
        if numbers > _limit(self.stored, ROOM_MADE):
            raise TooLarge
        shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
        return Outline(shapes, model.base_model_prefix)

    def too_large(self) -> str:
        """The field without which the model would not be too large, and its value."""
        usual = sorted({n for t in self.stored.tensors.values() for n in t.shape})
        largest = sorted(_whole_numbers(self.raw), key=lambda item: -item[1])
        for path, value in largest[:SUSPECTS]:
            for smaller in (1, *usual[:SUSPECTS]):
                try:
                    self.outline(_changed(self.raw, path, smaller))
                except TooLarge:
                    break
                except ENDS:  # it does not go with the other sizes
                    continue
                return _field(path, value)
        return ""

    def not_positive(self, made: Outline | None) -> str:
        """The field of at most 0 that hides stored tensors or keeps the model from being made.

        A field hides stored tensors if a list of modules that ``made`` lacks is there without it.
        """
        if made is None:
            return _not_positive(self.raw, [1, *self.stored.lists.values()], self.outline)
        lacking = _list_names(self.stored.tensors, made.prefix) - made.lists()

        def shows(raw: dict[str, Any]) -> None:
            if not self.outline(raw).lists() & lacking:
                raise LookupError

        return _not_positive(self.raw, self.stored.lists.values(), shows) if lacking else ""


def _made(raw: dict[str, Any]) -> PretrainedConfig:
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
        """How many numbers a tensor holds that has this shape but for the lowered ones."""
        return math.prod(map(self._dimension, shape))

    def _dimension(self, lowered: int) -> int:
        for large, small in self.small.items():
            if lowered and lowered % small == 0:
                return lowered // small * large
        return lowered


def _replaced(content: Any, by: Callable[[int], int]) -> Any:
    """A copy of a configuration with other whole numbers."""
    if isinstance(content, dict):
        return {key: _replaced(value, by) for key, value in content.items()}
    if isinstance(content, list):
        return [_replaced(value, by) for value in content]
    return by(content) if type(content) is int else content


def _limit(stored: Stored, room: int) -> int:
    return room * stored.parameters + NUMBERS


@contextmanager
def _limited(stored: Stored, lowered: _Lowered) -> Iterator[None]:
    """Raise `TooLarge` from within a constructor that goes far beyond what is stored."""
    tensors = ROOM_TENSORS * len(stored.tensors)
    parameters: dict[int, nn.Parameter] = {}
    numbers = modules = 0

    def parameter_made(_module: nn.Module, _name: str, made: nn.Parameter | None) -> None:
        nonlocal numbers
        if made is None or id(made) in parameters:
            return
        parameters[id(made)] = made  # kept, so that its id is not given to another
        numbers += lowered.numbers(made.shape)
        if len(parameters) > tensors + TENSORS or numbers > _limit(stored, ROOM_NUMBERS):
            raise TooLarge

    def module_made(_module: nn.Module, _name: str, _made: nn.Module | None) -> None:
        nonlocal modules
        modules += 1
        if modules > tensors + MODULES:
            raise TooLarge

    handles = (
        hooks.register_module_parameter_registration_hook(parameter_made),
        hooks.register_module_module_registration_hook(module_made),
    )
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _list_names(tensors: Iterable[str], prefix: str) -> set[str]:
    """The outermost lists that tensors are in, by path and by last name.

    ``prefix`` is left out, with which a body's tensors may be saved or not.
    """
    paths = {name.removeprefix(f"{prefix}.") for name, _ in outermost(tensors)}
    return paths | {path.rpartition(".")[2] for path in paths}


def _not_positive(
    raw: dict[str, Any], values: Iterable[int], works: Callable[[dict[str, Any]], object]
) -> str:
    """The field of at most 0 in whose place one of ``values`` works, that is raises nothing."""
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
    """Every whole number in nested objects and arrays, by where it stands."""
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
