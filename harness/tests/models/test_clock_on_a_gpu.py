"""The clock of passes waits for a GPU, but never while a graph is recorded there.

No GPU is needed: what torch says of one is replaced, and what it is told is noted.
"""

from __future__ import annotations

import pytest
import torch

from assay.harness.models.clock import ForwardClock
from assay.harness.tests.support.toys import prompt, toy


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happened on a GPU that is there: a note for every wait."""
    noted: list[str] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *which: noted.append("waited"))
    return noted


@pytest.mark.parametrize("recording", [False, True])
def test_a_pass_is_waited_for_unless_it_is_recorded(
    monkeypatch: pytest.MonkeyPatch, waits: list[str], recording: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: recording)
    subject, clock = toy("gpt2"), ForwardClock()
    with clock.watching(subject):
        subject.rows(prompt(subject))
    assert waits == ([] if recording else ["waited"])
    assert clock.work["own"][0] == 1
