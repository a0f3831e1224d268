"""What Hypothesis makes of draws that an example begins with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.database import choices_to_bytes

from assay.harness.checking import shared


def completed(
    strategy: Callable[[], st.SearchStrategy[Any]], draws: Sequence[int | bytes]
) -> tuple[Any, Any]:
    """The first example that Hypothesis makes of ``draws``, and all of its draws."""
    examples: list[tuple[Any, Any]] = []

    @settings(
        max_examples=1,
        database=shared.Shared([choices_to_bytes(draws)]),
        deadline=None,
        derandomize=False,
        suppress_health_check=[*HealthCheck],
    )
    @given(st.data())
    def collect(data: st.DataObject) -> None:
        examples.append((data.draw(strategy()), data.conjecture_data.choices))

    collect()
    return examples[0]
