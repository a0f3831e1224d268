"""An evidence file with one run, which has no claims yet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.harness.results.evidence import Evidence
from assay.harness.tests.support.evidence_files import (
    a_run,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new folder" / "evidence.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[Evidence]:
    with Evidence.open(path, timeout=0.2) as store:
        store.begin(a_run())
        yield store
