"""The base of modes that look at every operation of a model, also of one that flex attention runs.

Torch rejects its higher-order operators, as flex attention is one, under a mode that does not say
that it takes them (torch 2.6 and later).  Code that is to be compiled is not compiled under a
mode: torch marks it, and rejects it in this process from then on, without a mode too.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Self

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Dispatching(TorchDispatchMode):
    """A mode of which ``__torch_dispatch__`` also gets higher-order operators.

    Nothing is compiled while it is entered.
    """

    supports_higher_order_operators = True

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            if hasattr(torch.compiler, "set_stance"):  # not in torch 2.5
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            super().__enter__()  # type: ignore[no-untyped-call]
            self._stance = stack.pop_all()
        return self

    def __exit__(self, *raised: Any) -> None:
        with self._stance:
            super().__exit__(*raised)  # type: ignore[no-untyped-call]
