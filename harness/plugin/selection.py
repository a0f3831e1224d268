"""Which claims and models a run was asked for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest


def paths(config: pytest.Config) -> list[Path]:
    """The paths that were asked for (those of ``testpaths`` if none were), as absolute ones."""
    start = config.invocation_params.dir
    return [Path(os.path.normpath(start / each)) for each in config.args]


def has_all_claims(config: pytest.Config) -> bool:
    """Whether all files of claims are collected, whatever is then left out."""
    if any(getattr(config.option, name, None) for name in ("ignore", "ignore_glob", "lf")):
        return False
    root = config.rootpath
    return bool({root, root / "claims"} & set(paths(config)))


def chosen(config: pytest.Config) -> dict[str, Any]:
    """Which claims were asked for: ``--claim``, ``-k`` and ``-m``, and paths from the root on.

    And ``models``: those of ``--model`` as they were given, so patterns as such.
    """
    root, option = config.rootpath, config.option
    asked = getattr(option, "asked_models", getattr(option, "models", None))
    return {
        "models": list(asked or ["reference"]),
        "numbers": sorted(getattr(config.option, "claims", None) or []),
        "keyword": config.option.keyword,
        "marker": config.option.markexpr,
        "claims": [Path(os.path.relpath(path, root)).as_posix() for path in paths(config)],
    }
