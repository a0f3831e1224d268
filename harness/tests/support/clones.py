"""A small stand-in for a clone of Assay, and runs of pytest in it, which load no model."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from assay.harness.plugin import path_guard
from assay.harness.tests.support.sessions import PACKAGE

PLUGIN = "assay.harness.plugin.path_guard"
INSTALLED = bool(entry_points(group="pytest11", name=PLUGIN))
SETTINGS = """
[tool.pytest.ini_options]
testpaths = ["claims"]
pythonpath = ["."]
"""
CONFTEST = """
def pytest_addoption(parser):
    parser.addoption("--model", action="append")
    parser.addoption("--evidence")

def pytest_generate_tests(metafunc):
    metafunc.parametrize("subject", metafunc.config.option.model)
"""
CLAIMS = """
def test_one(subject): assert subject != "broken"
def test_two(subject): assert subject != "broken"
"""


def run(
    folder: Path, *args: object, command: tuple[str, ...] = ("-m", "pytest"), **env: str
) -> subprocess.CompletedProcess[str]:
    """Run pytest in a process of its own, in ``folder``, with ``args`` on the command line.

    Where Assay is not installed the plug-in comes by the environment, at the same moment.
    """
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    inherited["PYTHONPATH"] = str(PACKAGE)
    if not INSTALLED:
        inherited["PYTEST_PLUGINS"] = PLUGIN
    line = [sys.executable, *command, "-v", "-p", "no:cacheprovider"]
    line += ["-W", "error::pytest.PytestAssertRewriteWarning", *map(str, args)]
    return subprocess.run(
        line, cwd=folder, env=inherited | env, capture_output=True, text=True, timeout=300
    )


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What pytest sees of a clone of Assay, with claims that need no model: quick to run."""
    folder = tmp_path / "clone"
    (folder / "claims").mkdir(parents=True)
    (folder / "harness" / "plugin").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(SETTINGS)
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "claims" / "test_it.py").write_text(CLAIMS)
    (folder / "test_elsewhere.py").write_text(CLAIMS)
    (folder / "harness" / "__init__.py").touch()
    shutil.copy(path_guard.__file__, folder / "harness" / "plugin")
    return folder
