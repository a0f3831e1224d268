"""Cases that `tox -e nightly` alone runs, because others of their kind run in every change."""

from __future__ import annotations

from typing import Any

import pytest


def nightly(*values: Any) -> Any:
    """A case of a parametrised test, for nightly runs alone."""
    return pytest.param(*values, marks=pytest.mark.nightly)
