"""From a version that a sweep names to the Python that has it.

The one place that knows: a tool that builds environments has only to be asked here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from assay.harness.results.errors import BadInput
from assay.harness.results.evidence_file import default_path
from assay.harness.runners import environments
from assay.harness.runners.sweeps.plan import HERE

ASK = """
import importlib.metadata as m, json, platform
found = {"python": platform.python_version()}
for name in ("torch", "transformers", "pytest", "hypothesis"):
    try: found[name] = m.version(name)
    except m.PackageNotFoundError: pass
print(json.dumps(found))
"""
"""Asks a Python what it has, without importing any of it."""

PATIENCE = 60
"""Seconds in which a Python has to answer."""


@dataclass(frozen=True)
class Environment:
    """A Python with all that claims need, and its versions by package."""

    python: str
    versions: dict[str, str]


def interpreter(version: str) -> Path:
    """The Python of a version: this one (``here``), a path, or one that is made.

    ``transformers==5.8.1``, and other requirements with a ``==``, stand for this Python with that
    release laid over it, made once.  Raises `BadInput`.
    """
    if version == HERE:
        return Path(sys.executable)
    if "==" in version:
        try:
            return environments.made(kept() / version, [version]).python
        except environments.CannotInstall as why:
            raise BadInput(f"{version}: cannot be installed: {why}") from why
    path = Path(version)
    if "/" not in version:
        raise BadInput(f"{version!r}: no such environment; give transformers==X or a path")
    if path.is_dir():
        path = path / "bin" / "python"
    if not os.access(path, os.X_OK):
        raise BadInput(f"{version}: there is no Python there")
    return path


def kept() -> Path:
    """Where environments that were made are kept, beside the evidence of the user."""
    return default_path().parent / "environments"


def find(version: str) -> Environment:
    """The environment of a version, which has what claims need; raises `BadInput`.

    Each is looked for once, whether it is found or not: pip may take minutes to say no.
    """
    found = _found(version)
    if isinstance(found, BadInput):
        raise BadInput(str(found))
    return found


@cache
def _found(version: str) -> Environment | BadInput:
    try:
        return _looked_at(version)
    except BadInput as error:
        return error


def _looked_at(version: str) -> Environment:
    python = str(interpreter(version))
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    try:
        done = subprocess.run(
            [python, "-c", ASK],
            env=os.environ if version == HERE else clean,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        versions = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise BadInput(f"{version}: is no Python that runs ({type(error).__name__})") from error
    for package in ("torch", "transformers", "pytest", "hypothesis"):
        if package not in versions:
            raise BadInput(f"{version}: {python} has no {package}")
    return Environment(python, versions)
