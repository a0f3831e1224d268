"""Settings of claims that tests make smaller."""

from __future__ import annotations

import pytest

from assay.claims.inversion import test_repetition as repetition


@pytest.fixture
def short_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims about repetition generate 24 tokens from the eighth on."""
    monkeypatch.setattr(repetition, "START", 8)
    monkeypatch.setattr(repetition, "TOKENS", 24)
