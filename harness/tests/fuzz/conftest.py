"""The valid inputs that tests damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.harness.tests.support.fuzz_inputs import stock


@pytest.fixture(scope="session")
def stocked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Valid inputs, not to be changed."""
    return stock(tmp_path_factory.mktemp("fuzz") / "inputs")
