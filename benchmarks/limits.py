"""Measures the machine's limits in the same run, such as its fastest matrix product."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch

from assay.benchmarks.stopwatch import Stopwatch
from assay.harness.models import accelerators, memory
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
        raise BadInput(f"tf32: is an arithmetic of CUDA cards, and this is {device}")


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
        with computing_in(self.arithmetic) as dtype:
            one, other = (
                torch.rand(size, size, device=self.device).to(dtype) - 0.5 for _ in range(2)
            )
            torch.mm(one, other)
            laps = [self.stopwatch.lap(lambda: torch.mm(one, other)) for _ in range(TRIES)]
        rate = 2 * size**3 / min(lap.seconds for lap in laps)
        self.best = max(self.best, rate)
        return rate


Shape = tuple[int, int, int]
"""Rows, columns, and the length of the sums of a product of two matrices."""


def product_rate(
    arithmetic: str, shape: Shape, device: torch.device, stopwatch: Stopwatch, calls: int = 1
) -> float:
    """FLOP/s of a product of that shape, the fastest of `TRIES` blocks of ``calls``."""
    rows, columns, inner = shape
    with computing_in(arithmetic) as dtype:
        one = (torch.rand(rows, inner, device=device) - 0.5).to(dtype)
        other = (torch.rand(inner, columns, device=device) - 0.5).to(dtype)
        result = torch.empty(rows, columns, device=device, dtype=dtype)

        def block() -> None:
            for _ in range(calls):
                torch.mm(one, other, out=result)

        block()
        laps = [stopwatch.lap(block) for _ in range(TRIES)]
    return calls * 2 * rows * columns * inner / min(lap.device or lap.seconds for lap in laps)


def shapes(width: int, vocabulary: int, tokens: Sequence[int]) -> list[Shape]:
    """The products of a block of a ``width`` over so many tokens, and of its head."""
    found = []
    for rows in tokens:
        found += [(rows, 3 * width, width), (rows, width, width)]
        found += [(rows, 4 * width, width), (rows, width, 4 * width)]
    return [*found, (tokens[-1], vocabulary, width)]


LAUNCHES = 1000
"""Operations of a block whose time is that of launching them."""


def launch_latency(device: torch.device, stopwatch: Stopwatch) -> float:
    """Seconds of an operation on one number, of many in a row: what launching one takes."""
    number = torch.zeros(1, device=device)

    def block() -> None:
        for _ in range(LAUNCHES):
            number.add_(1)

    block()
    return min(stopwatch.lap(block).seconds for _ in range(TRIES)) / LAUNCHES


def replay_latency(device: torch.device, stopwatch: Stopwatch) -> float | None:
    """The same within a recorded graph; None where there are none."""
    if device.type != "cuda":
        return None
    number = torch.zeros(1, device=device)
    with torch.cuda.device(device):
        graph = torch.cuda.CUDAGraph()
        number.add_(1)
        accelerators.wait(device)
        with torch.cuda.graph(graph):
            for _ in range(LAUNCHES):
                number.add_(1)
    graph.replay()
    return min(stopwatch.lap(graph.replay).seconds for _ in range(TRIES)) / LAUNCHES


def flush(device: torch.device, footprint: float | None = None) -> Callable[[], object]:
    """A function that empties the device's cache; one that does nothing where that is no matter.

    It writes twice the bytes of the cache.  What takes more room than the cache, ``footprint`` in
    bytes, finds nothing of itself there anyway.
    """
    cache = accelerators.cache_bytes(device)
    if cache is None or (footprint is not None and footprint > cache):
        return lambda: None
    buffer = torch.empty(2 * cache, dtype=torch.int8, device=device)
    return buffer.zero_


def bandwidth(device: torch.device, stopwatch: Stopwatch) -> float:
    """Bytes per second of the fastest copy, counting reads and writes."""
    size = min(COPIED.get(device.type, COPIED["cpu"]), memory.free(device) // 4)
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    laps = [stopwatch.lap(lambda: target.copy_(source)) for _ in range(TRIES + 1)]
    return 2 * size / min(lap.seconds for lap in laps[1:])
