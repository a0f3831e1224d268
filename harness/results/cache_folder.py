"""The folder in the user's cache where Assay keeps what it can make again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """``assay`` in ``XDG_CACHE_HOME`` or ``~/.cache``; RuntimeError where there is no home."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification: a path that is not absolute is to be ignored.
    base = Path(cache) if Path(cache).is_absolute() else Path.home() / ".cache"
    return base / "assay"
