"""Faults that remove a capability: an input that the model's type takes is ignored.

They refute no claim, since those about the input no longer apply; the recorded capabilities of the
type show them (`harness.models.capabilities.recorded`).
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from assay.harness.faults.bed import Bed
from assay.harness.faults.calls import Pass
from assay.harness.faults.catalogue import fault
from assay.harness.models.capabilities.recorded import CAPABILITY
from assay.harness.models.subject import roles
from assay.harness.models.subject.roles import Role


@fault(
    "positions-ignored",
    "positions that are given are ignored and counted instead",
    caught_by=[CAPABILITY],
    needs=["position-ids"],
    at=Bed.arguments,
)
def _no_positions(forward: Pass, kwargs: dict[str, Any]) -> None:
    kwargs.pop(forward.positions_name, None)


@fault(
    "mask-4d-ignored",
    "a 4-D mask that is given is ignored",
    caught_by=[CAPABILITY],
    needs=["mask-4d"],
    at=Bed.arguments,
)
def _no_mask(forward: Pass, kwargs: dict[str, Any]) -> None:
    for name in roles.spellings(Role.MASK):
        if isinstance(kwargs.get(name), Tensor) and kwargs[name].ndim == 4:
            kwargs.pop(name)


@fault(
    "cache-not-given",
    "a pass that is asked for its cache returns none",
    caught_by=[CAPABILITY],
    needs=["cache"],
    at=Bed.arguments,
)
def _no_cache(forward: Pass, kwargs: dict[str, Any]) -> None:
    kwargs[forward.bound[Role.KEEP]] = False
