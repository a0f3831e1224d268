"""Whether the shapes inside a pass depend on its tokens, not only on their number.

Two passes of one shape give the same bits, since every product is computed in the same way.  Where
tokens are routed to experts, or sorted into buckets, a later token changes the shape of an earlier
one's products, and rounding differs although nothing is wrong.  So it may where activations are
quantised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from assay.harness.models.machine.dispatching import Dispatching
from assay.harness.models.machine.weights import rounds_activations
from assay.harness.models.subject import selection
from assay.harness.models.subject.memo import memo

if TYPE_CHECKING:
    from assay.harness.models.subject import Subject

TOKENS, ROWS = 12, 2
"""The size of the compared prompts: long enough that experts and buckets differ."""


class _Shapes(Dispatching):
    """Notes every operation with the shapes of its results."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: list[tuple[str, tuple[tuple[int, ...], ...]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        leaves = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        self.operations.append((str(func), tuple(tuple(leaf.shape) for leaf in leaves)))
        return result


@memo
def depend_on_tokens(subject: Subject) -> bool:
    """Whether passes over two prompts of one shape have different shapes inside, if visible.

    True where it cannot be determined.
    """
    if rounds_activations(subject.model):
        return True  # the scale of a row, or how it is split, may depend on the other rows
    if selection.chooses(subject):  # grouped products hide the shapes of their groups
        return True
    n = max(subject.shortest, min(TOKENS, subject.context or TOKENS))
    first = torch.arange(ROWS * n, device=subject.device).reshape(ROWS, n)
    try:
        one, other = (_shapes(subject, ids) for ids in (first * 7 + 3, first.flip(1) * 13 + 5))
    except Exception:  # not observable: flex attention, operations of a model's own
        return True
    return one != other


def _shapes(subject: Subject, numbers: Tensor) -> list[tuple[str, tuple[tuple[int, ...], ...]]]:
    ids = subject.content(numbers)
    subject.rows(ids)  # does the one-time work: builds tables, fills buffers
    with _Shapes() as watch:
        subject.rows(ids)
    return watch.operations
