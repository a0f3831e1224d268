"""The machine's ceilings, by arithmetic: products of the sizes used, copies, launches."""

from __future__ import annotations

import numpy as np
import pytest

from assay.benchmarks import limits
from assay.harness.models import memory
from assay.harness.results.errors import BadInput

USED = {"reference:large": (256, 4096), "gpt2": (768, 50257), "rotary-8b": (4096, 128256)}
"""Widths and vocabularies of the models that are inverted or checked."""

TOKENS = (20, 320, 1280)
"""Tokens of a pass: of one prompt, of 16 and of 64."""

CALLS = {"cpu": 1, "cuda": 20}
"""Products of a timed block."""

SQUARES = None
"""Sizes of square products; None means those of `limits.SIZES`."""

REHEARSAL = {"USED": {"reference:large": (256, 4096)}, "TOKENS": (20,), "SQUARES": (256,)}


@pytest.mark.parametrize("arithmetic", ["float32", "tf32", "bfloat16", "float16"])
def test_products(benchmark, report, device, stopwatch, arithmetic):
    try:
        limits.check(arithmetic, device)
    except BadInput as why:
        pytest.skip(str(why))
    calls = CALLS.get(device.type, CALLS["cuda"])
    squares = SQUARES or limits.SIZES.get(device.type, limits.SIZES["cuda"])
    room = memory.free(device) / 2
    size = limits.ARITHMETICS[arithmetic][0].itemsize
    products = {(n, n, n): 1 for n in squares if 3 * n * n * size < room}
    for width, vocabulary in USED.values():
        products |= dict.fromkeys(limits.shapes(width, vocabulary, TOKENS), calls)

    def every():
        return {
            shape: limits.product_rate(arithmetic, shape, device, stopwatch, count)
            for shape, count in products.items()
        }

    rates = benchmark.pedantic(every, rounds=1, iterations=1)
    assert all(rate > 0 for rate in rates.values())
    best = max(rates, key=rates.get)
    used = [rate for shape, rate in rates.items() if len(set(shape)) > 1]
    name = f"products, {arithmetic}"
    report.figure(name, "TFLOP/s, best", np.array([rates[best] / 1e12]))
    report.figure(name, "TFLOP/s, of the sizes used", np.array(used) / 1e12)
    report.also(
        ceiling={"arithmetic": arithmetic, "flops_per_second": rates[best]},
        products={" × ".join(map(str, shape)): rate for shape, rate in rates.items()},
    )


def test_copies(benchmark, report, device, stopwatch):
    rate = benchmark.pedantic(limits.bandwidth, args=(device, stopwatch), rounds=1, iterations=1)
    report.figure("copies", "GB/s, read and written", np.array([rate / 1e9]))
    report.also(bandwidth=rate)


def test_launches(benchmark, report, device, stopwatch):
    def both():
        return [find(device, stopwatch) for find in (limits.launch_latency, limits.replay_latency)]

    launched, replayed = benchmark.pedantic(both, rounds=1, iterations=1)
    report.figure("launches", "microseconds of an operation", np.array([1e6 * launched]))
    if replayed is not None:
        report.figure("launches", "microseconds, in a graph", np.array([1e6 * replayed]))
