"""What Hypothesis makes of draws that an example begins with."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from assay.harness.checking import shared
from assay.harness.checking.entries import Entries


class Ends(BaseException):
    """Ends the search at its first example, which Hypothesis then saves."""


def completed(strategy: st.SearchStrategy[Any], number: int = 0) -> tuple[Any, bytes, bytes]:
    """A shared value of ``strategy``, its draws as they are offered, and all of its draws."""
    offer = shared.offered(strategy)
    assert offer is not None
    entry = shared.examples(offer, "0", number + 1)[number]
    values: list[Any] = []
    saved: list[bytes] = []

    @settings(
        max_examples=1,
        database=Entries([entry], saved.append),
        derandomize=False,
        phases=[Phase.reuse],
        suppress_health_check=[*HealthCheck],
    )
    @given(st.data())
    def collect(data: st.DataObject) -> None:
        values.append(data.draw(strategy))
        raise Ends

    with pytest.raises(Ends):
        collect()
    return values[0], entry, saved[0]
