"""Counts the floating-point operations of a step by torch's own counter: exact, no clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from assay.harness.models.capabilities import Missing
from assay.harness.models.subject import Subject


def count(subject: Subject, call: Callable[[], object]) -> int:
    """FLOPs of the matrix products in ``call``, with attention as plain products.

    The counter does not know every fused kernel, so attention is eager while it counts.
    """
    counter = FlopCounterMode(display=False)
    try:
        with subject.attending_by("eager"), counter:
            call()
    except (ValueError, NotImplementedError) as error:
        raise Missing(f"attention cannot be written out for counting: {error}") from error
    return counter.get_total_flops()


def count_pass(subject: Subject, ids: Tensor) -> int:
    """FLOPs of one pass over ``ids`` [batch, n]: a step that recomputes the past."""
    _encode(subject, ids)
    return count(subject, lambda: subject(ids, states=False))


def count_cached_step(subject: Subject, ids: Tensor) -> int:
    """FLOPs of the last token of ``ids`` [batch, n] on a cache of those before it."""
    _encode(subject, ids)
    cache = subject(ids[:, :-1], keep=True, states=False).cache
    return count(subject, lambda: subject(ids[:, -1:], cache=cache, keep=True, states=False))


def _encode(subject: Subject, ids: Tensor) -> None:
    """Compute an encoder's states once, if there is an encoder."""
    if subject.is_encoder_decoder:
        with subject.attending_by("eager"):
            subject(ids[:, :1], states=False)


def bend(costs: Sequence[int]) -> float:
    """The deviation of three equally spaced costs from a line, relative to the middle one."""
    below, middle, above = costs
    return abs(below - 2 * middle + above) / middle
