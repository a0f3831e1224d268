"""Prompts that laws share, so that the plain path of each is computed once for a model.

A law compares a path with the plain pass of the same prompt, on the model and on its float64
reference: three quarters of its time.  Laws that begin with the same prompts share these passes
(`harness.models.subject.kept_rows`).

Hypothesis reads examples from its database before it draws any, and completes short ones at
random.  So the draws that make a shared prompt are such examples, and what a law draws after its
prompt differs from law to law.  They shrink like all others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis import strategies as st

Value = TypeVar("Value")
Draws = tuple[int | bytes, ...]
Offer = Callable[[str, int], Draws]
"""The draws that make a shared value, by the run's seed and a number."""

_OFFER = "_assay_shared"


def offer(strategy: st.SearchStrategy[Value], draws: Offer) -> st.SearchStrategy[Value]:
    """Make values of ``strategy`` shared ones of the laws that draw it first."""
    setattr(strategy, _OFFER, draws)
    return strategy


def offered(strategy: st.SearchStrategy[Any]) -> Offer | None:
    """What makes shared values of ``strategy``; None where it has none."""
    offers: Offer | None = getattr(strategy, _OFFER, None)
    return offers


def examples(draws: Offer, seed: str, count: int) -> list[bytes]:
    """``count`` entries of Hypothesis's database that begin with shared draws.

    None where Hypothesis has no such function: it is not public, and a law then draws prompts of
    its own.  By public means an entry is what a search happened to draw, not given bytes.
    """
    try:
        from hypothesis.database import choices_to_bytes
    except ImportError:
        return []
    return [choices_to_bytes(draws(seed, number)) for number in range(count)]
