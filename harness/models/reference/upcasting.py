"""Weights in float64 without a second copy of the model: each is upcast where a product uses it.

A float64 copy of a model in 16 bits takes four times the model's memory.  An `Upcast` takes none:
it looks like a float64 tensor to the model's code and holds the stored weight, which every
operation converts, and drops again.  Large tables are converted in slices, or by the rows that are
looked up.  The numbers are those of the copy: conversion to float64 is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map, tree_map_only

SLICE = 1 << 19
"""Numbers of a weight that are converted at once in a product: 4 MiB.

They stay in the processor's cache.  A product with 16 tokens then takes as long as with weights
that are in float64 already; with slices of 128 MiB, three times as long.
"""

aten = torch.ops.aten

MOVES = frozenset(
    {
        *(
            aten.view.default,
            aten.t.default,
            aten.transpose.int,
            aten.permute.default,
            aten.expand.default,
        ),
        *(
            aten.select.int,
            aten.slice.Tensor,
            aten.unsqueeze.default,
            aten.squeeze.default,
            aten.squeeze.dim,
        ),
        *(aten.split.Tensor, aten.split_with_sizes.default, aten.unbind.int),
        *(aten._unsafe_view.default, aten.squeeze.dims, aten.unfold.default),
    }
)
"""Operations that return other views of the same numbers, of any dtype."""

ALIASES = frozenset({aten.detach.default, aten.alias.default})
"""Operations that return the same tensor again."""


class Upcast(Tensor):
    """A float64 tensor that stores its numbers as ``stored``, of any shape and a float dtype.

    Read only: an operation that would write to it raises RuntimeError.
    """

    stored: Tensor

    @staticmethod
    def __new__(cls, stored: Tensor, dtype: torch.dtype = torch.float64) -> Upcast:
        """A tensor of the shape, strides and device of ``stored``."""
        return Tensor._make_wrapper_subclass(
            cls,
            stored.shape,
            strides=stored.stride(),
            storage_offset=stored.storage_offset(),
            dtype=dtype,
            device=stored.device,
        )

    def __init__(self, stored: Tensor, dtype: torch.dtype = torch.float64) -> None:
        self.stored = stored

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Leave an operation to `__torch_dispatch__`, below what records gradients."""
        with torch._C.DisableTorchFunctionSubclass():
            if (folded := FOLDED.get(func)) is not None:
                return folded(*args, **(kwargs or {}))
            if func is Tensor.data.__set__:  # type: ignore[attr-defined]
                args[0].stored = args[1].detach()  # a module is converted to another dtype
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch's stub is of a function
        cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation on the numbers in float64."""
        kwargs = kwargs or {}
        if func in ALIASES:
            return args[0].again()
        if func in MOVES:
            moved = func(args[0].stored, *args[1:], **kwargs)
            dtype = args[0].dtype
            return tree_map(
                lambda each: Upcast(each, dtype) if torch.is_tensor(each) else each, moved
            )
        if func._schema.is_mutable and _written(func, args, kwargs):
            raise RuntimeError(f"{func}: weights of a float64 reference are read only")
        if (by_parts := BY_PARTS.get(func)) is not None:
            return by_parts(*args, **kwargs)
        return func(*_wide(args), **_wide(kwargs))

    def __deepcopy__(self, memo: dict[int, Any]) -> Upcast:
        """Copies share the numbers, which nothing changes through this tensor."""
        if id(self) not in memo:
            again = self.again()
            memo[id(self)] = nn.Parameter(again, False) if self._is_parameter else again
        copied: Upcast = memo[id(self)]
        return copied

    def again(self) -> Upcast:
        """Another tensor of the same numbers."""
        return Upcast(self.stored, self.dtype)

    @property
    def _is_parameter(self) -> bool:
        return isinstance(self, nn.Parameter)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"Upcast({self.stored!r})"


class Unpacked(Upcast):
    """A float64 tensor of ``shape`` that stores no numbers: ``unpack`` returns them at each use.

    For example, it unpacks a quantised weight.
    """

    @staticmethod
    def __new__(
        cls, unpack: Callable[[], Tensor], shape: torch.Size, device: torch.device
    ) -> Unpacked:
        """A contiguous tensor."""
        return Tensor._make_wrapper_subclass(cls, shape, dtype=torch.float64, device=device)

    def __init__(
        self, unpack: Callable[[], Tensor], shape: torch.Size, device: torch.device
    ) -> None:
        self.unpack = unpack

    @property
    def stored(self) -> Tensor:  # type: ignore[override]
        """The numbers, unpacked at each access."""
        return self.unpack()

    def again(self) -> Unpacked:
        """Another tensor of the same numbers."""
        return Unpacked(self.unpack, self.shape, self.device)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"Unpacked({tuple(self.shape)})"


def as_parameter(weight: Tensor) -> Tensor:
    """A frozen float64 parameter with the numbers of ``weight``, which it shares."""
    upcast = weight if isinstance(weight, Upcast) else Upcast(weight.detach())
    return nn.Parameter(upcast, requires_grad=False)


def _written(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether an operation writes to an `Upcast`."""
    for place, argument in enumerate(func._schema.arguments):
        value = args[place] if place < len(args) else kwargs.get(argument.name)
        written = argument.alias_info is not None and argument.alias_info.is_write
        if written and isinstance(value, Upcast):
            return True
    return False


def _wide(arguments: Any) -> Any:
    return tree_map_only(Upcast, lambda each: each.stored.to(each.dtype), arguments)


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """X [..., in] @ weight [out, in]ᵀ + bias [out], as torch folds it for plain tensors."""
    if x.ndim < 3 or weight.ndim != 2:
        return nn.functional.linear(x, weight, bias)
    added = bias if x.is_contiguous() else None
    y = nn.functional.linear(x.reshape(-1, x.shape[-1]), weight, added)
    y = y.view(*x.shape[:-1], y.shape[-1])
    return y if bias is None or added is not None else y + bias


def _matmul(left: Tensor, right: Tensor) -> Tensor:
    """Left @ right, where one may be a matrix, which torch would repeat for each batch."""
    if left.ndim == 2 and right.ndim > 2:
        return _matmul(right.mT, left.T).mT
    if left.ndim < 3 or right.ndim != 2:
        return torch.matmul(left, right)
    y = left.reshape(-1, left.shape[-1]) @ right
    return y.view(*left.shape[:-1], y.shape[-1])


FOLDED: dict[Any, Callable[..., Tensor]] = {
    nn.functional.linear: _linear,
    torch.matmul: _matmul,
    Tensor.matmul: _matmul,
    Tensor.__matmul__: _matmul,
}
"""Functions that torch decomposes in another way for tensors of classes of their own."""


def _mm(left: Tensor, right: Tensor) -> Tensor:
    """Left [m, k] @ right [k, n] by columns of ``right``, or rows of ``left``."""
    if isinstance(right, Upcast):
        (left,) = _wide((left,))
        return torch.cat([left @ part for part in _parts(right, 1)], dim=1)
    return torch.cat([part @ right for part in _parts(left, 0)], dim=0)


def _addmm(
    bias: Tensor, left: Tensor, right: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """Bias + left [m, k] @ right [k, n]; by columns where ``right`` is large."""
    bias, left = _wide((bias, left))
    if not isinstance(right, Upcast) or right.numel() <= SLICE:
        (right,) = _wide((right,))
        return torch.addmm(bias, left, right, beta=beta, alpha=alpha)
    products, columns = [], 0
    for part in _parts(right, 1):
        width = part.shape[1]
        some = bias if bias.shape[-1] == 1 else bias[..., columns : columns + width]
        products.append(torch.addmm(some, left, part, beta=beta, alpha=alpha))
        columns += width
    return torch.cat(products, dim=1)


def _parts(weight: Tensor, dim: int) -> Iterator[Tensor]:
    """A matrix in its float64, in slices of at most `SLICE` numbers along ``dim``.

    Each overwrites the one before.  Slices of their own, with the products between them, would
    leave holes in glibc's heap: for an output embedding as large as all its slices together.
    """
    stored = weight.stored if isinstance(weight, Upcast) else weight
    across = stored.numel() // max(1, stored.shape[dim])
    parts = stored.split(max(1, SLICE // max(1, across)), dim)
    shared = torch.empty_like(parts[0], dtype=weight.dtype)
    for part in parts:
        whole = part.shape == shared.shape and part.dtype != shared.dtype
        yield shared.copy_(part) if whole else part.to(weight.dtype)


def _embedding(weight: Tensor, indices: Tensor, *options: Any, **named: Any) -> Tensor:
    """The rows of a table that are looked up."""
    stored = weight.stored if isinstance(weight, Upcast) else weight
    return aten.embedding.default(stored, indices, *options, **named).to(weight.dtype)


def _index(weight: Tensor, indices: Any) -> Tensor:
    """Indexed numbers of a table."""
    stored = weight.stored if isinstance(weight, Upcast) else weight
    return aten.index.Tensor(stored, _wide(indices)).to(weight.dtype)


BY_PARTS: dict[Any, Callable[..., Tensor]] = {
    aten.mm.default: _mm,
    aten.addmm.default: _addmm,
    aten.embedding.default: _embedding,
    aten.index.Tensor: _index,
}
"""Operations that need only parts of a weight at a time."""


def with_buffers_in_float64(duplicate: nn.Module) -> None:
    """Convert the buffers of a model whose parameters are `Upcast`, in place."""
    for module in duplicate.modules():
        for name, buffer in module._buffers.items():
            if buffer is not None and buffer.is_floating_point():
                module._buffers[name] = buffer.double()
            elif buffer is not None and buffer.is_complex():
                module._buffers[name] = buffer.to(torch.complex128)
