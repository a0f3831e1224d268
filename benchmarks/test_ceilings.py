"""The machine's ceilings, by arithmetic: products of the sizes used, copies, launches."""

from __future__ import annotations

import pytest

from assay.benchmarks import limits
from assay.harness.inversion import graphs
from assay.harness.models.machine import memory
from assay.harness.results.errors import BadInput

USED = {"reference:large": (256, 4096), "gpt2": (768, 50257), "rotary-8b": (4096, 128256)}
"""Widths and vocabularies of the models that are inverted or checked."""

TOKENS = 320
"""Tokens of a pass over 16 prompts."""

CALLS = 20
"""Products of a timed block on a GPU, so that launching them is not what takes time."""

SHAPES = [
    *((n, n, n) for n in sorted({n for sizes in limits.SIZES.values() for n in sizes})),
    *(shape for model in USED.values() for shape in limits.shapes(*model, TOKENS)),
]

pytestmark = pytest.mark.benchmark(min_rounds=3, max_time=0.2)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: " x ".join(map(str, shape)))
@pytest.mark.parametrize("arithmetic", ["float32", "tf32", "bfloat16", "float16"])
def test_product(benchmark, report, device, stopwatch, arithmetic, shape):
    rows, columns, inner = shape
    square = rows == columns == inner
    try:
        limits.check(arithmetic, device)
    except BadInput as why:
        pytest.skip(str(why))
    if square and rows not in limits.SIZES.get(device.type, limits.SIZES["cuda"]):
        pytest.skip(f"{rows} is a size of another kind of device than {device.type}")
    numbers = rows * inner + inner * columns + rows * columns
    if numbers * limits.ARITHMETICS[arithmetic][0].itemsize > memory.free(device) / 2:
        pytest.skip(f"too little memory for {shape}")
    calls = 1 if square or device.type == "cpu" else CALLS
    benchmark(stopwatch.to_the_end(limits.product(arithmetic, shape, device, calls)))
    flops = calls * 2 * rows * columns * inner
    report.figure(f"product, {arithmetic}, {shape}", "TFLOP/s", flops / 1e12 / report.seconds)


def test_copies(benchmark, report, device, stopwatch):
    copy, moved = limits.copying(device)
    benchmark(stopwatch.to_the_end(copy))
    report.figure("copies", "GB/s, read and written", moved / 1e9 / report.seconds)


@pytest.mark.parametrize("way", ["one by one", "in a graph"])
def test_launches(benchmark, report, device, stopwatch, way):
    block = limits.launches(device)
    if way == "in a graph":
        if device.type != "cuda":
            pytest.skip("only CUDA records graphs")
        block = graphs.graph_of(device, block)
    benchmark(stopwatch.to_the_end(block))
    each = 1e6 * report.seconds / limits.LAUNCHES
    report.figure(f"launches, {way}", "microseconds of an operation", each)
