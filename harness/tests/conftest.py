"""Fixtures that several files of tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.tests.sessions import Project


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """A folder with claims of its own; runs on it that are still going are ended."""
    made = Project(tmp_path / "project")
    yield made
    made.close()
