"""Reads TOML files that users write, and rejects wrong ones in one line."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

from assay.harness.results.errors import BadInput


def read(path: Path) -> dict[str, Any]:
    """The content of a file; raises `BadInput` where it is missing or no TOML."""
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        # Reading a pipe would wait.
        raise BadInput(f"{path}: is not a regular file")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # a number may have too many digits for Python
        raise BadInput(f"{path}: not TOML: {error}") from error
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})") from error
