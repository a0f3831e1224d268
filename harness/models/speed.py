"""Times a model's passes, in its own dtype and in float64, to plan what a run costs."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

import numpy as np
import torch

from assay.harness.models import accelerators
from assay.harness.models.shortage import ENDS, pass_on
from assay.harness.models.subject import Subject

LENGTHS = (8, 32, 96)
"""Prompts in tokens; shorter where the model's context is."""

ROUNDS = 2
"""Timed passes of a length, after one that is not; the fastest counts."""


@dataclass(frozen=True)
class Passes:
    """Seconds of a pass: ``fixed`` and ``each`` for every token."""

    fixed: float
    each: float

    def seconds(self, passes: float, tokens: float) -> float:
        """The time of so many passes over so many tokens in all."""
        return passes * self.fixed + tokens * self.each


@dataclass(frozen=True)
class Speed:
    """What passes of a model take: its own, and those of its float64 reference if it has one."""

    own: Passes
    reference: Passes | None

    @classmethod
    def of(cls, subject: Subject) -> Speed:
        """Time passes of ``subject``; raises what the model raises."""
        own = _timed(subject)
        try:
            return cls(own, _timed(subject.oracle))
        except ENDS as error:  # claims that need it say why
            pass_on(error)
            return cls(own, None)


def _timed(subject: Subject) -> Passes:
    most = min(subject.context or LENGTHS[-1], LENGTHS[-1])
    lengths = sorted({max(subject.shortest, min(n, most)) for n in LENGTHS})
    times = [min(_seconds(subject, n) for _ in range(ROUNDS + 1)) for n in lengths]
    if len(lengths) == 1:
        return Passes(0.0, times[0] / lengths[0])
    each, fixed = np.polyfit(lengths, times, 1)
    each = max(0.0, float(each))
    return Passes(max(0.0, min(float(fixed), min(times))), each)


def _seconds(subject: Subject, n: int) -> float:
    ids = subject.content(torch.arange(n, device=subject.device)[None] * 7)
    accelerators.wait(subject.device)
    started = perf_counter()
    subject.rows(ids)
    accelerators.wait(subject.device)
    return perf_counter() - started
