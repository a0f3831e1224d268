"""Emulates another machine's rounding: moves products and sums in their last place.

The rounding of a product or a sum depends on the processor, the matrix library, the number of
threads and the addresses of its operands: a sound model gives other bits elsewhere.  `Rounding`
changes every such result on one machine, by a seed.  A verdict that changes with the seed rests on
one machine's rounding.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any

import torch
from torch import Tensor
from torch._ops import HigherOrderOperator
from torch.utils._pytree import tree_leaves

from assay.harness.models.machine.dispatching import Dispatching

ROUNDED = re.compile(
    # Products.
    r"(add|badd)?b?mm|addbmm|addmm_activation|add?mv|mv|v?dot|inner|tensordot|einsum|bilinear"
    r"|trilinear|chain_matmul|(mkldnn_|fbgemm_)?linear|(linear|matmul)(_backward)?|.*_mm(_.*)?"
    r"|mkldnn_linear_backward.*|(.*_)?conv(?!ert).*|p?dist|cdist.*|pdist_.*|euclidean_dist"
    r"|(linalg_(?!diagonal|vander)|fft_(?!.*(shift|freq))|cholesky|lu_).*"
    r"|geqrf|orgqr|ormqr|qr|svd|inverse|pinverse|(log)?det|slogdet|matrix_(exp|power).*"
    r"|triangular_solve|.*(lstm|gru|rnn)_(cell|layer).*"
    # Sums.
    r"|(nan)?(sum|mean)|(var|std)(_mean)?|prod|trace|(log)?cum(sum|prod|sumexp)|logsumexp"
    r"|(.*_)?norm(_.*)?|(renorm)|.*softmax.*|.*avg_pool\dd.*|.*_loss(_forward|_backward)?"
    r"|embedding_bag.*|embedding_dense_backward|segment_reduce.*|cosine_similarity"
    # Attention in one kernel.
    r"|(scaled_dot_product|flash|efficient|cudnn|flex)_.*attention.*|.*multi_head_attention"
)
"""Operations whose results depend on the order of a sum, without underscores around the name."""

ADDING = re.compile(r"index_add|scatter_add|(scatter|index)_reduce|(index_)?put|index_put_impl")
"""Operations that add to some elements of their first operand and leave the others."""

CHOOSING = ("amax", "amin")
"""Reductions without rounding."""

BITS = {
    torch.float64: torch.int64,
    torch.float32: torch.int32,
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
}
"""Integers as wide as the floats: one more or less is the neighbour in the last place."""

PERIOD = 65521
"""Elements (a prime number) after which a result's pattern repeats."""

KEPT = 2**12
"""The size of the cache of patterns."""


class Rounding(Dispatching):
    """Inside this block, products, sums, norms and attention round otherwise, by ``seed``.

    Every element of such a result moves to the float below or above it, or stays, by a hash of the
    operation, of its operands' shapes, strides and alignments (addresses modulo 64) and of the
    seed: equal calls on equally aligned operands give equal bits, in every process.  Integers that
    the dtype represents exactly stay, since a sum of small integers has no rounding, and so do
    numbers that are not finite.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here, and skipping `torch.compile` would cost 5 µs a call."""
        return False

    def __init__(self, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seed = seed
        self._patterns: OrderedDict[tuple[Any, ...], Tensor] = OrderedDict()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name, kind = _kind(func)
        if kind is Kind.SUM:
            operands = self._call(name, args, kwargs)
            result = func(*args, **kwargs)
            for place, tensor in enumerate(tree_leaves(result)):
                self._round(tensor, (*operands, place))
            return result
        if kind is Kind.ADDING and _adds(name, args, kwargs):
            before = args[0].clone()
            operands = self._call(name, args, kwargs)
            result = func(*args, **kwargs)
            self._round(result, operands, before)
            return result
        if kind is Kind.COMPOSITE:
            # In inference mode operations arrive here before they are decomposed.
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        return func(*args, **kwargs)

    def _call(self, name: str, args: Any, kwargs: dict[str, Any]) -> tuple[Any, ...]:
        return name, *_descriptions(tree_leaves((args, kwargs)))

    def _round(self, result: Any, call: tuple[Any, ...], before: Tensor | None = None) -> None:
        """Move the elements of ``result`` in place; with ``before``, only those that differ."""
        if not _is_plain(result) or result.numel() == 0:
            return
        if result.is_complex():
            result = torch.view_as_real(result)
            before = None if before is None else torch.view_as_real(before)
        if result.dtype not in BITS:
            return
        moves = self._moves((*call, result.dtype), result.numel(), result.device)
        rounded = _has_rounding(result)
        if before is not None:
            rounded &= result != before
        result.view(BITS[result.dtype]).add_(moves.view(result.shape) * rounded)

    def _moves(self, call: tuple[Any, ...], size: int, device: torch.device) -> Tensor:
        """-1, 0 or 1 for each of ``size`` elements: [size], int8."""
        key = (*call, min(size, PERIOD), device)
        if (pattern := self._patterns.pop(key, None)) is None:
            digest = hashlib.blake2b(repr((self.seed, *call)).encode(), digest_size=7).digest()
            generator = torch.Generator().manual_seed(int.from_bytes(digest, "big"))
            moves = torch.randint(-1, 2, (min(size, PERIOD),), generator=generator)
            pattern = moves.to(device, torch.int8)
        self._patterns[key] = pattern  # at the end: the least recently used is dropped first
        if len(self._patterns) > KEPT:
            self._patterns.popitem(last=False)
        return pattern if size <= PERIOD else pattern.repeat(-(-size // PERIOD))[:size]


class Kind(Enum):
    """How `Rounding` treats an operation."""

    SUM = "its results are rounded"
    ADDING = "what it adds to is rounded"
    COMPOSITE = "its parts are looked at"
    EXACT = "its results stay"


@functools.cache
def _kind(func: Any) -> tuple[str, Kind]:
    """An operation's name, without namespace, overload and underscores, and its kind."""
    name = func.name().rpartition("::")[2].partition(".")[0].strip("_")
    if ROUNDED.fullmatch(name):
        return name, Kind.SUM
    if ADDING.fullmatch(name):
        return name, Kind.ADDING
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    if not isinstance(func, HigherOrderOperator) and (
        torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key)
    ):
        return name, Kind.COMPOSITE
    return name, Kind.EXACT


def _adds(name: str, args: Any, kwargs: dict[str, Any]) -> bool:
    """Whether an operation that can add to its first operand does so in this call."""
    values = [each for each in (*args[1:], *kwargs.values()) if isinstance(each, bool | str)]
    added = True in values if "put" in name else not any(each in CHOOSING for each in values)
    return added and _is_plain(args[0])


def _is_plain(value: Any) -> bool:
    """Whether ``value`` is a plain tensor with numbers in memory."""
    plain = type(value) in (Tensor, torch.nn.Parameter) and value.layout == torch.strided
    return plain and value.device.type != "meta"


def _descriptions(leaves: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    """The dtype, shape, strides and address modulo 64 of every tensor among ``leaves``."""
    for leaf in leaves:
        if isinstance(leaf, Tensor):
            aligned = leaf.data_ptr() % 64 if _is_plain(leaf) else 0
            strides = leaf.stride() if leaf.layout == torch.strided else ()
            yield leaf.dtype, tuple(leaf.shape), strides, aligned


def _has_rounding(values: Tensor) -> Tensor:
    """Which ``values`` may be off in their last place: not integers, and far from infinite.

    Integers beyond the dtype's exact range may be.
    """
    sizes, limits = values.abs(), torch.finfo(values.dtype)
    exact = (sizes <= 2 / limits.eps) & (values == values.round())
    return (sizes < limits.max / 2) & ~exact
