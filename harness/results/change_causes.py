"""Reads the causes of changes between versions of a library, from a TOML file that people write.

Each change is a table::

    [[change]]
    kind = "wrong numbers"
    types = "mamba2"
    what = "C2 in chunks of several tokens: off by 0.8 to 1.7"
    bad = "up to 5.12.1"
    good = "5.15"
    cause = "with a state present, any number of tokens went through the step for one"
    upstream = "issue #46032"
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from assay.harness.results import toml
from assay.harness.results.errors import BadInput


@dataclass(frozen=True)
class Change:
    """One change: model types, versions with and without the fault, cause, what upstream says."""

    kind: str
    types: str
    what: str
    bad: str
    good: str
    cause: str
    upstream: str


def read(path: Path) -> list[Change]:
    """The changes in a file, in its order; raises `BadInput`."""
    content: dict[str, Any] = toml.read(path)
    try:
        return msgspec.convert(content.get("change", []), list[Change])
    except msgspec.ValidationError as error:
        raise BadInput(f"{path}: {error}") from error
