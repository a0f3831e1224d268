"""An atlas made in a test, and the data in its page."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

from assay.harness.report.atlas import build
from assay.harness.report.atlas.collect import Collected

GPT2, MAMBA = "tiny:gpt2", "tiny:mamba"
OLD, NEW = "4.57.1", "5.0.0"


def data_of(page: str) -> dict[str, Any]:
    """What the page's script unpacks."""
    packed = page.partition('id="data">')[2].partition("<")[0]
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def built(tmp_path: Path, *files: Path, **more: Any) -> str:
    build(files, tmp_path / "atlas", **more)
    return (tmp_path / "atlas" / "index.html").read_text()


def verdicts(collected: Collected) -> dict[tuple[str, ...], str]:
    return {key[1:]: str(cell.result.verdict) for key, cell in collected.cells.items()}
