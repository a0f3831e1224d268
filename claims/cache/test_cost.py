"""What a step of decoding costs, with a cache and without (document 004, answer 1)."""

from __future__ import annotations

import torch
from hypothesis import strategies as st

from assay.harness.checking.laws import law
from assay.harness.operations import flops
from assay.harness.results.errors import Missing

LONGEST = 96
"""Tokens of a prompt at most."""


@law(
    "C11",
    "with a cache a step costs O(n), without one O(n²)",
    needs=["kv-cache", "steady-cost"],
    source="004, answer 1",
    control="a step that recomputes the past: its cost is no straight line in n",
    enough=3,
)
def test_a_cached_step_costs_a_straight_line_in_n(subject, draw, check):
    room = min(subject.window or LONGEST, subject.context or LONGEST, LONGEST)
    if room < 4:
        raise Missing(f"steady-cost: past its window of {room} tokens a step costs otherwise")
    step = draw(st.integers(1, max(1, (room - 2) // 2)), "step")
    first = draw(st.integers(2, max(2, room - 2 * step)), "first length")
    ids = subject.content(torch.arange(first + 2 * step, device=subject.device)[None] * 7)
    lengths = [first, first + step, first + 2 * step]
    cached = [flops.count_cached_step(subject, ids[:, :n]) for n in lengths]
    recomputed = [flops.count_pass(subject, ids[:, :n]) for n in lengths]
    check.details["FLOPs of a cached step"] = dict(zip(lengths, cached, strict=True))
    check.details["FLOPs of a recomputed step"] = dict(zip(lengths, recomputed, strict=True))
    check.judge(flops.bend(cached), 0.0, f"prompts of {lengths} tokens")
    check.judge_control(flops.bend(recomputed), 0.0)
    check.sees_one_bit(flops.bend([*cached[:-1], cached[-1] + 1]))
