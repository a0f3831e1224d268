"""The size of the model that config.json describes, compared with the stored tensors.

The model is built without memory (torch's meta device).  Building stops as soon as the model needs
far more numbers than are stored: a damaged configuration takes neither hours nor all memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as hooks
from transformers import CONFIG_MAPPING, PretrainedConfig

from assay.harness.models.loading.tensors import Stored
from assay.harness.models.machine.shortage import ENDS
from assay.harness.results.errors import BadInput, brief
from assay.harness.results.quiet import quiet

COUNT, MOST = 3360, 256 * 3360
"""Larger integers count as the first of these that works, or as a multiple of it, until the number
of layers is checked: some configurations list every layer, and search the list for each.  Both are
divisible among heads, and the second exceeds all vocabularies."""

WHILE_BUILT, BUILT = 16, 2
"""How many times the stored numbers a model may have: weights that will be tied are separate at
first, and position embeddings need not be stored."""

NUMBERS = 2**20
"""An allowance for a model of any size."""


class _TooLarge(Exception):
    """A model needs far more than is stored."""


def configuration(raw: dict[str, Any], spec: str) -> PretrainedConfig:
    """The configuration in ``raw``, with its integers bounded by `MOST`; raises `BadInput`."""
    for most in (COUNT, MOST):
        try:
            return _configured(_bounded(raw, most))
        except ENDS as error:  # whatever a model's own configuration class raises
            failure = error
    raise BadInput(f"{spec}: config.json cannot be used ({brief(failure)})") from failure


def check(raw: dict[str, Any], auto: type[Any], stored: Stored, spec: str) -> set[str]:
    """The names of the model's parameters, none where it cannot be built: loading it says why.

    ``raw`` is the content of config.json and ``auto`` the transformers class that will load the
    model.  Raises `BadInput` where the model is far larger than the ``stored`` tensors.
    """
    widest = max((n for each in stored.tensors.values() for n in each.shape), default=1)
    lowered = _bounded(raw, COUNT * -(-widest // COUNT))
    try:
        names = _parameters(lowered, auto, stored)
        return names if lowered == raw else _parameters(raw, auto, stored)
    except _TooLarge:
        raise BadInput(
            f"{spec}: the configuration describes a model far larger than its weights, which hold "
            f"{len(stored.tensors)} tensors of {stored.floats} numbers: they are of different "
            "models, or sizes are left out"
        ) from None
    except ENDS:  # whatever a model's own code raises
        return set()


def _parameters(raw: dict[str, Any], auto: type[Any], stored: Stored) -> set[str]:
    config = _configured(raw)
    with torch.random.fork_rng(devices=[]), torch.device("meta"), _limited(stored):
        model = getattr(auto, "from_config", auto)(config)
    if sum(each.numel() for each in model.parameters()) > _limit(stored, BUILT):
        raise _TooLarge
    return {name for name, _ in model.named_parameters()}


def _configured(raw: dict[str, Any]) -> PretrainedConfig:
    with quiet():  # of special ids beyond a bounded vocabulary
        return CONFIG_MAPPING[raw["model_type"]].from_dict(raw)


def _bounded(content: Any, most: int) -> Any:
    """A copy of a configuration in which no integer exceeds ``most``."""
    if isinstance(content, dict):
        return {key: _bounded(value, most) for key, value in content.items()}
    if isinstance(content, list):
        return [_bounded(value, most) for value in content]
    return min(content, most) if type(content) is int else content


def _limit(stored: Stored, times: int) -> int:
    # Integers may pack a number in each bit.
    return times * (stored.floats + 8 * stored.other_bytes) + NUMBERS


@contextmanager
def _limited(stored: Stored) -> Iterator[None]:
    """Raise `_TooLarge` within a constructor that far exceeds the stored tensors."""
    sizes: dict[nn.Parameter, int] = {}
    numbers = 0

    def on_parameter(_module: nn.Module, _name: str, parameter: nn.Parameter | None) -> None:
        nonlocal numbers
        if parameter is not None and parameter not in sizes:
            numbers += sizes.setdefault(parameter, parameter.numel())
        if numbers > _limit(stored, WHILE_BUILT):
            raise _TooLarge

    handle = hooks.register_module_parameter_registration_hook(on_parameter)
    try:
        yield
    finally:
        handle.remove()
