"""The base of modes that look at every operation of a model, also of one that flex attention runs.

Torch rejects its higher-order operators, as flex attention is one, under a mode that does not say
that it takes them (torch 2.6 and later).
"""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode


class Dispatching(TorchDispatchMode):
    """A mode of which ``__torch_dispatch__`` also gets higher-order operators."""

    supports_higher_order_operators = True
