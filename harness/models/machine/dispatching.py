"""The base of modes that look at every operation of a model, also of one that flex attention runs.

Torch rejects its higher-order operators, as flex attention is one, under a mode that does not say
that it takes them (torch 2.6 and later).  Code that is to be compiled is not compiled under a
mode: torch marks it, and rejects it in this process from then on, without a mode too.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Any, Self

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class _Uncompiled:
    """Nothing is compiled from the first entry to the last exit, in whatever order threads exit.

    Torch's stance is one for all threads, and each exit would restore what it found.
    """

    def __init__(self) -> None:
        self._lock, self._inside, self._stance = threading.Lock(), 0, ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1 and hasattr(torch.compiler, "set_stance"):  # not in torch 2.5
                self._stance.enter_context(torch.compiler.set_stance("force_eager"))

    def __exit__(self, *raised: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._stance.close()


_UNCOMPILED = _Uncompiled()


class Dispatching(TorchDispatchMode):
    """A mode of which ``__torch_dispatch__`` also gets higher-order operators.

    Nothing is compiled while it is entered.
    """

    supports_higher_order_operators = True

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(_UNCOMPILED)
            super().__enter__()  # type: ignore[no-untyped-call]
            stack.pop_all()
        return self

    def __exit__(self, *raised: Any) -> None:
        try:
            super().__exit__(*raised)  # type: ignore[no-untyped-call]
        finally:
            _UNCOMPILED.__exit__(*raised)
