"""Selects the claims and models that a run was asked for."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from assay.harness.results.records import Selection


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


def chosen(config: pytest.Config, models: Iterable[str], claims: Iterable[str] = ()) -> Selection:
    """The models and the claims by their numbers, as they are named; what ``-k`` and ``-m`` say;
    and paths from the root on.
    """
    return Selection(
        models=list(models),
        numbers=sorted(claims),
        keyword=config.option.keyword,
        marker=config.option.markexpr,
        claims=[Path(os.path.relpath(path, config.rootpath)).as_posix() for path in paths(config)],
    )
