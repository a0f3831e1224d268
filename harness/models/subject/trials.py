"""Finds out by passes which argument of a model is its cache, where its name leaves a doubt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from assay.harness.models.machine.shortage import pass_on
from assay.harness.models.subject import encoders, returned, roles
from assay.harness.models.subject.roles import Role
from assay.harness.results.errors import REFUSALS

if TYPE_CHECKING:
    from assay.harness.models.subject import Subject

EFFECT = 1e-3
"""The relative change of the output that shows that a past was read: far above rounding."""


def cache_argument(subject: Subject, names: Sequence[str]) -> str | None:
    """Which of ``names`` is the argument that takes the past, or None.

    Of several that may be, the first that works: a pass returns a cache, and the next pass takes
    it by that name and reads it.  If a pass returns a cache and no name works, the likeliest name
    is taken, so that the laws about caches find out what is wrong.
    """
    try:
        cache = _returned(subject)
    except REFUSALS as error:
        pass_on(error)
        cache = None
    if cache is not None:
        for name in names:
            if _is_read(subject, name, cache()):
                return name
        return next(iter(subject.bound.caches), None)
    return None


def _ids(subject: Subject) -> Tensor:
    return torch.tensor([[1, 4, 2, 7, 3]], device=subject.device) % subject.vocabulary


def _pass(subject: Subject, ids: Tensor, **more: Any) -> Any:
    """The output of a pass over ``ids`` [1, n], as a mapping."""
    values: dict[str, Any] = {Role.IDS: ids, Role.NAMED_OUTPUT: True, Role.KEEP: True}
    if not subject.bound.open:
        values = {role: v for role, v in values.items() if role in subject.bound}
    if subject.is_encoder_decoder:
        values[Role.ENCODED] = encoders.fixed(subject, 1)
    first = () if subject.takes(Role.IDS) else (values.pop(Role.IDS, ids),)
    with torch.no_grad():
        output = subject.model(*first, **subject.bound.named(values), **more)
    return returned.mapping(output, *ids.shape)


def _returned(subject: Subject) -> Any:
    """A function that makes a cache of the first tokens, or None where a pass returns none."""

    def cache() -> Any:
        output = _pass(subject, _ids(subject)[:, :-2])
        named = next((output[n] for n in subject.bound.caches if n in output), None)
        return roles.returned_cache(output) if named is None else named

    return None if cache() is None else cache


def _is_read(subject: Subject, name: str, cache: Any) -> bool:
    """Whether the last tokens give another output with ``cache`` as the argument ``name``."""
    ids = _ids(subject)[:, -2:-1]
    try:
        alone, after = _pass(subject, ids), _pass(subject, ids, **{name: cache})
    except REFUSALS as error:
        pass_on(error)
        return False
    rows = [returned.tensors(each, *ids.shape) for each in (alone, after)]
    pairs = [(rows[0][key], rows[1][key]) for key in rows[0] if key in rows[1]]
    return any(bool((a - b).norm() > EFFECT * a.norm()) for a, b in pairs)
