"""Selects the claims and models of a run."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import pytest

from assay.harness.checking import catalogue
from assay.harness.checking.outside import Outside
from assay.harness.checking.profiles import PROFILES
from assay.harness.plugin.request import RunRequest
from assay.harness.results.records import Selection
from assay.harness.results.verdicts import Kind

SLOW = {Kind.LAW: "slow_law", Kind.FINDING: "slow_finding"}
"""The marks of claims that short profiles leave out."""

FILES = pytest.StashKey[set[Path] | None]()
"""The files of Assay's own claims to collect; None for all."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file of Assay's own claims that has none of those that ``--claim`` names."""
    files = config.stash[FILES]
    own = collection_path.suffix == ".py" and collection_path.is_relative_to(catalogue.FOLDER)
    return True if files is not None and own and collection_path not in files else None


def pytest_pycollect_makemodule(
    module_path: Path, parent: pytest.Collector
) -> pytest.Module | None:
    """Take a file that ``--claims`` names as it was imported: again, its faults would be two."""
    for each in RunRequest.of(parent.config).outside:
        if each.file == module_path.resolve():
            module = pytest.Module.from_parent(parent, path=module_path)
            module.obj = each.module
            return module
    return None


def paths(config: pytest.Config) -> list[Path]:
    """The requested paths (those of ``testpaths`` by default), made absolute."""
    start = config.invocation_params.dir
    return [Path(os.path.normpath(start / each)) for each in config.args]


def has_all_claims(config: pytest.Config) -> bool:
    """Whether all files of claims are collected, whatever is then deselected."""
    if any(getattr(config.option, name, None) for name in ("ignore", "ignore_glob", "lf")):
        return False
    root = config.rootpath
    return bool({root, root / "claims"} & set(paths(config)))


def files(config: pytest.Config) -> set[Path] | None:
    """The files of Assay's own claims that ``--claim`` names; None where all are collected.

    All are where a claim is unknown, which ends the run, and where the files are named.
    """
    request, folder = RunRequest.of(config), catalogue.FOLDER
    whole = any(folder.is_relative_to(path) for path in paths(config))
    others = {claim.id for each in request.outside for _, claim in each.claims}
    requested = [each for each in request.claims if each.partition(":")[0] not in others]
    if not request.claims or not whole or catalogue.misspelt(requested):
        return None
    return catalogue.files(requested)


def path_of(config: pytest.Config, source: Outside) -> str:
    """The path of a module of ``--claims`` from pytest's root on; its tests' ids have it."""
    return Path(os.path.relpath(source.file, config.rootpath)).as_posix()


def from_outside(session: pytest.Session, collected: Collection[Path]) -> Iterator[pytest.Item]:
    """The tests of ``--claims``: of modules that are imported, beside which nothing is read.

    Not those of files that pytest has ``collected`` by itself.
    """
    for each in RunRequest.of(session.config).outside:
        if each.file in collected:
            continue
        module = pytest.Module.from_parent(
            session, path=each.file, name=path_of(session.config, each)
        )
        module.obj = each.module
        yield from session.genitems(module)


def leaves_out_slow(config: pytest.Config) -> bool:
    """Whether the profile is a short one, and neither ``-m`` nor ``--claim`` names slow claims."""
    request, marker = RunRequest.of(config), config.option.markexpr or ""
    named = any(mark in marker for mark in SLOW.values()) or bool(request.claims)
    return not named and not PROFILES[request.profile].slow


def chosen(config: pytest.Config, models: Iterable[str], claims: Iterable[str] = ()) -> Selection:
    """The models and the claims by their numbers, as named; the values of ``-k`` and ``-m``;
    and the paths, relative to the root.
    """
    return Selection(
        models=list(models),
        numbers=sorted(claims),
        keyword=config.option.keyword,
        marker=config.option.markexpr,
        claims=[
            Path(os.path.relpath(path, config.rootpath)).as_posix()
            for path in (*paths(config), *(each.file for each in RunRequest.of(config).outside))
        ],
    )
