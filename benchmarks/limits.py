"""Measures the machine's limits in the same run, such as its fastest matrix product."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from assay.benchmarks.stopwatch import Stopwatch
from assay.harness.models.machine import accelerators, memory
from assay.harness.results.errors import BadInput

SIZES = {"cpu": (1024, 2048, 3072), "cuda": (4096, 8192, 16384)}
"""Sizes of the square matrices whose products are timed, by the kind of device."""

COPIED = {"cpu": 2**28, "cuda": 2**31}
"""Bytes of a timed copy: more than any cache holds."""

TRIES = 3
"""Tries of each measurement; the fastest counts."""

ARITHMETICS = {
    "float32": (torch.float32, "highest"),
    "tf32": (torch.float32, "high"),
    "bfloat16": (torch.bfloat16, "highest"),
    "float16": (torch.float16, "highest"),
    "float64": (torch.float64, "highest"),
}
"""Arithmetics of products: a dtype, and how float32 is multiplied
(`torch.set_float32_matmul_precision`)."""


def check(arithmetic: str, device: torch.device) -> None:
    """Raise `BadInput` where ``device`` has no such arithmetic."""
    if arithmetic not in ARITHMETICS:
        raise BadInput(f"arithmetic {arithmetic!r}: there are {', '.join(ARITHMETICS)}")
    if arithmetic == "tf32" and device.type != "cuda":
        raise BadInput(f"tf32: is an arithmetic of CUDA GPUs, and this is {device}")


@contextmanager
def computing_in(arithmetic: str) -> Iterator[torch.dtype]:
    """Multiply float32 by ``arithmetic`` within the block; yields its dtype."""
    dtype, precision = ARITHMETICS[arithmetic]
    usual = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield dtype
    finally:
        torch.set_float32_matmul_precision(usual)


Shape = tuple[int, int, int]
"""Rows, columns, and the length of the sums of a product of two matrices."""


def product(
    arithmetic: str, shape: Shape, device: torch.device, calls: int = 1
) -> Callable[[], None]:
    """A function that multiplies matrices of that shape, ``calls`` times one after another."""
    rows, columns, inner = shape
    dtype, _ = ARITHMETICS[arithmetic]
    one = (torch.rand(rows, inner, device=device) - 0.5).to(dtype)
    other = (torch.rand(inner, columns, device=device) - 0.5).to(dtype)
    result = torch.empty(rows, columns, device=device, dtype=dtype)

    def block() -> None:
        with computing_in(arithmetic):
            for _ in range(calls):
                torch.mm(one, other, out=result)

    block()
    return block


class Ceiling:
    """The best square matrix product in an arithmetic on a device, in FLOP/s."""

    def __init__(self, arithmetic: str, device: torch.device, stopwatch: Stopwatch) -> None:
        check(arithmetic, device)
        self.arithmetic, self.device, self.stopwatch = arithmetic, device, stopwatch
        self.best = 0.0
        room = memory.free(device) / 2 / 3 / ARITHMETICS[arithmetic][0].itemsize
        sizes = [size for size in SIZES.get(device.type, SIZES["cpu"]) if size**2 <= room]
        rates = {size: self._rate(size) for size in sizes or [512]}
        self.size = max(rates, key=lambda size: rates[size])

    def __call__(self) -> float:
        """Measure again, at the best size: FLOP/s."""
        return self._rate(self.size)

    def _rate(self, size: int) -> float:
        block = product(self.arithmetic, (size, size, size), self.device)
        rate = 2 * size**3 / min(self.stopwatch.lap(block).seconds for _ in range(TRIES))
        self.best = max(self.best, rate)
        return rate


def shapes(width: int, vocabulary: int, tokens: int) -> list[Shape]:
    """The products of a block of a ``width`` over so many tokens, and of its head."""
    outputs = (3 * width, width, 4 * width, vocabulary)
    return [*((tokens, columns, width) for columns in outputs), (tokens, width, 4 * width)]


LAUNCHES = 1000
"""Operations of a block whose time is that of launching them."""


def launches(device: torch.device) -> Callable[[], None]:
    """A function that runs `LAUNCHES` operations on one number: launching them takes longest."""
    number = torch.zeros(1, device=device)

    def block() -> None:
        for _ in range(LAUNCHES):
            number.add_(1)

    block()
    return block


def flush(device: torch.device) -> Callable[[], object]:
    """A function that empties the cache of an accelerator, by writing twice as many bytes."""
    cache = cache_bytes(device)
    if cache is None:
        return lambda: None
    return torch.empty(2 * cache, dtype=torch.int8, device=device).zero_


def copying(device: torch.device) -> tuple[Callable[[], object], int]:
    """A function that copies more than any cache holds, and the bytes that it reads and writes."""
    size = min(COPIED.get(device.type, COPIED["cpu"]), memory.free(device) // 4)
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return lambda: target.copy_(source), 2 * size


def peak(device: torch.device) -> int | None:
    """The most bytes that tensors took since `forget_peak`; None where torch does not count."""
    of_kind = accelerators.module(device.type)
    counted = getattr(of_kind, "max_memory_allocated", None)
    return int(counted(device)) if counted is not None else None


def forget_peak(device: torch.device) -> None:
    """Count the peak of memory from now on."""
    forget = getattr(accelerators.module(device.type), "reset_peak_memory_stats", None)
    if forget is not None:
        forget(device)


def cache_bytes(device: torch.device) -> int | None:
    """Bytes of the accelerator's second-level cache; None where torch does not know."""
    of_kind = accelerators.module(device.type)
    about = getattr(of_kind, "get_device_properties", None)
    if about is None or device.type == "mps":
        return None
    size = getattr(about(device), "L2_cache_size", None)
    return int(size) if size else None
