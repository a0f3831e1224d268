"""Emulates another machine's rounding and addresses, as a run's options ask."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from assay.harness.models.machine import allocation
from assay.harness.models.reference.rounding import Rounding


@contextmanager
def emulated(rounding: int | None, allocated: str | None) -> Iterator[None]:
    """Within a block, round by a seed (`harness.models.reference.rounding`) and allocate as named.

    None leaves the machine's own behaviour.
    """
    with ExitStack() as stack:
        if allocated is not None:
            stack.enter_context(allocation.odd())
        if rounding is not None:
            stack.enter_context(Rounding(rounding))
        yield
