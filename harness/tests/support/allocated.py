"""Measures the largest tensor that a block allocates."""

from __future__ import annotations

import weakref
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Allocated(TorchDispatchMode):
    """The bytes of tensors made inside this block: of the ``largest``, and at the ``peak`` of all
    that were alive at a time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.largest = self.peak = self.alive = 0
        self.seen: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        before = {
            leaf.untyped_storage()._cdata for leaf in tree_leaves((args, kwargs)) if _is(leaf)
        }
        for leaf in tree_leaves(result):
            if _is(leaf) and leaf.untyped_storage()._cdata not in before | self.seen:
                self._count(leaf)
        return result

    def _count(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        size, key = storage.nbytes(), storage._cdata
        self.seen.add(key)
        self.alive += size
        self.largest, self.peak = max(self.largest, size), max(self.peak, self.alive)
        weakref.finalize(storage, self._freed, key, size)

    def _freed(self, key: int, size: int) -> None:
        self.seen.discard(key)
        self.alive -= size


def _is(value: Any) -> bool:
    return isinstance(value, Tensor)
