"""What CI installs is hashed, in the versions of constraints.txt, which stays the only source."""

from __future__ import annotations

import re
import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from assay.harness.tests.support.sessions import ROOT

HASHED = (ROOT / ".ci" / "requirements.txt").read_text()
BLOCK = re.compile(
    r"^([\w.-]+)==([\w.]+)[^\n]*\\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.M
)
UNHASHED = "torch"
"""Its builds differ by index, such as those for processors alone."""


def constrained() -> dict[str, str]:
    """The version of every package in the constraints."""
    lines = [
        line.split("#")[0].strip()
        for name in ("constraints.txt", "constraints-tools.txt")
        for line in (ROOT / name).read_text().splitlines()
    ]
    pairs = [line.split("==") for line in lines if "==" in line]
    return {canonicalize_name(name): version for name, version in pairs}


def hashed() -> dict[str, str]:
    """The version of every package that CI compares with a hash."""
    return {canonicalize_name(name): version for name, version, _ in BLOCK.findall(HASHED)}


def test_every_line_has_a_version_and_hashes() -> None:
    rest = [line for line in BLOCK.sub("", HASHED).splitlines() if not line.startswith("#")]
    assert not rest
    assert len(hashed()) > 60


def test_versions_are_those_of_the_constraints() -> None:
    pinned = constrained()
    wrong = {name: version for name, version in hashed().items() if pinned.get(name) != version}
    assert not wrong, "run .ci/pin"


def test_all_that_is_asked_for_is_hashed() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = settings["project"]
    requirements = [*project["dependencies"], *project["optional-dependencies"]["scale"], "tox"]
    groups = settings["dependency-groups"]
    requirements += [line for name in ("tests", "lint", "release") for line in groups[name]]
    requirements += settings["build-system"]["requires"]
    names = {canonicalize_name(Requirement(line).name) for line in requirements}
    assert names - hashed().keys() == {UNHASHED}
    assert UNHASHED in constrained()


def test_ci_compares_them_and_installs_nothing_else() -> None:
    commands = (ROOT / ".ci" / "run").read_text()
    download, _, install = commands.partition("export PIP_NO_INDEX=1")
    assert "--require-hashes" in download
    assert "pip install" not in download
    assert "tox run" in install
