"""Environments with other versions of a package, layered over the installed packages.

An environment is a venv whose own packages come before those of the running Python.  So
only what a requirement changes is installed, in seconds and megabytes: another transformers with
the tokenizers and the huggingface_hub that it requires.  torch is never changed.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from assay.harness.results.errors import BadInput
from assay.harness.results.evidence_file import default_path

KEPT = ("torch",)
"""Packages of which pip must not choose another version."""

MARK = "assay-environment.json"
"""Written last: an environment without it was not finished and is rebuilt."""

SHOWN = ("transformers", "tokenizers", "huggingface_hub", "torch")
IMPORTS = """
import torch, transformers
transformers.PreTrainedModel, transformers.AutoModelForCausalLM
"""
"""Run in a new environment: do its packages import together?"""

VERSIONS = """
import importlib.metadata, json, platform, sys
versions = {"python": platform.python_version()}
for name in sys.argv[1:]:
    try: versions[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError: pass
print(json.dumps(versions))
"""
"""Prints the versions of packages that a Python has, without importing any of them."""

HERE = "here"
"""The version that stands for the running Python."""

REQUIRED = ("torch", "transformers", "pytest", "hypothesis")
"""Packages without which no claim can run."""

PATIENCE = 1800.0
"""Seconds that pip may take."""

ANSWER = 60.0
"""Seconds within which a Python must answer."""


class CannotInstall(Exception):
    """An environment cannot be built, and why, in one line."""


@dataclass(frozen=True)
class Environment:
    """A Python: its executable, and the versions of the packages that it sees."""

    python: Path
    versions: dict[str, str]


def prepare(folder: Path, requirements: Sequence[str]) -> Environment:
    """The environment in ``folder`` with ``requirements``; built unless it exists.

    Raises `CannotInstall`, and `BadInput` where the folder holds something else.
    """
    recipe = _recipe(requirements)
    if (existing := _read(folder / MARK)) is not None and existing.get("asked") == recipe:
        return Environment(_python(folder), existing["versions"])
    if files := [each for each in (folder, *folder.parents) if each.is_file()]:
        raise BadInput(f"{files[0]}: is a file; give a folder for the environments")
    if folder.exists():
        if any(folder.iterdir()) and not (folder / "pyvenv.cfg").is_file():
            raise BadInput(f"{folder}: exists already and is not an environment")
        shutil.rmtree(folder)
    try:
        _lay(folder)
        _install(folder, requirements)
        versions = _imported(_python(folder))
        (folder / MARK).write_text(json.dumps({"asked": recipe, "versions": versions}) + "\n")
    except (OSError, ValueError) as error:  # venv rejects a path with a colon by the latter
        shutil.rmtree(folder, ignore_errors=True)
        raise CannotInstall(str(error)) from error
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return Environment(_python(folder), versions)


def default_folder() -> Path:
    """The default folder of environments: next to the user's evidence."""
    return default_path().parent / "environments"


def find(version: str) -> Environment:
    """The environment that a version stands for; raises `BadInput` if it lacks packages.

    ``here`` is this Python, ``transformers==5.8.1`` this one with that release layered over it,
    and anything with a slash the path of a Python or of its environment.  Each is searched for
    once, also if it is missing: pip may take minutes to fail.
    """
    environment = _find(version)
    if isinstance(environment, BadInput):
        raise BadInput(str(environment))
    return environment


@cache
def _find(version: str) -> Environment | BadInput:
    try:
        python = _interpreter(version)
        versions = _versions(python, REQUIRED)
    except BadInput as error:
        return error
    except (CannotInstall, OSError) as error:
        return BadInput(f"{version}: is not a working Python ({error})")
    lacking = [name for name in REQUIRED if name not in versions]
    if lacking:
        return BadInput(f"{version}: {python} has no {lacking[0]}")
    return Environment(python, versions)


def _interpreter(version: str) -> Path:
    """The Python of a version; raises `BadInput`."""
    if version == HERE:
        return Path(sys.executable)
    if "==" in version:
        try:
            return prepare(default_folder() / version, [version]).python
        except CannotInstall as why:
            raise BadInput(f"{version}: cannot be installed: {why}") from why
    if "/" not in version:
        raise BadInput(f"{version!r}: no such environment; give transformers==X or a path")
    path = Path(version) / "bin" / "python" if Path(version).is_dir() else Path(version)
    if not os.access(path, os.X_OK):
        raise BadInput(f"{version}: no Python there")
    return path


def released(package: str) -> list[Version]:
    """Versions of ``package`` that pip can install here, oldest first.

    Pre-releases, yanked versions and those for other Pythons are left out.  Raises
    `CannotInstall`.
    """
    output = _run([sys.executable, "-m", "pip", "index", "versions", package])
    prefix = "Available versions:"
    lines = [line for line in output.splitlines() if line.startswith(prefix)]
    if not lines:
        raise CannotInstall(f"pip does not say which versions of {package} there are")
    versions = []
    for text in lines[0].removeprefix(prefix).split(","):
        try:
            versions.append(Version(text.strip()))
        except InvalidVersion:
            continue
    return sorted(versions)


def _recipe(requirements: Sequence[str]) -> dict[str, Any]:
    """The recipe of an environment; it is rebuilt when the recipe changes."""
    return {
        "requirements": list(requirements),
        "kept": _kept(),
        "python": platform.python_version(),
        "over": _packages(),
    }


def _kept() -> list[str]:
    return [f"{name}=={importlib.metadata.version(name)}" for name in KEPT]


def _packages() -> list[str]:
    """The folders in which this Python searches for packages, in its order."""
    return [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]


def _python(folder: Path) -> Path:
    return folder.joinpath(*(("Scripts", "python.exe") if os.name == "nt" else ("bin", "python")))


def _lay(folder: Path) -> None:
    """An empty venv in ``folder`` that finds this Python's packages after its own."""
    venv.EnvBuilder(symlinks=os.name != "nt").create(folder)
    paths = {"base": str(folder), "platbase": str(folder)}
    own = Path(sysconfig.get_path("purelib", "venv", vars=paths))
    # By addsitedir, so that editable installs, which are .pth files themselves, work, too.
    lines = [f"import site; site.addsitedir({path!r})" for path in _packages()]
    (own / "assay-over.pth").write_text("\n".join(lines) + "\n")


def _install(folder: Path, requirements: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        constraints = Path(scratch, "constraints.txt")
        constraints.write_text("\n".join(_kept()) + "\n")
        pip = [str(_python(folder)), "-m", "pip", "install", "--quiet", "--no-compile"]
        _run([*pip, "--constraint", str(constraints), *requirements])


def _imported(python: Path) -> dict[str, str]:
    """The versions in an environment, after importing its packages."""
    try:
        _run([str(python), "-c", IMPORTS])
    except CannotInstall as error:
        raise CannotInstall(f"is installed but cannot be imported ({error})") from error
    versions = _versions(python, SHOWN)
    return {name: versions[name] for name in SHOWN}


def _versions(python: Path, names: Sequence[str]) -> dict[str, str]:
    """The versions of packages and of a Python itself; missing packages are left out."""
    output = _run([str(python), "-c", VERSIONS, *names], ANSWER)
    try:
        return dict(json.loads(output.splitlines()[-1]))
    except (ValueError, IndexError) as error:
        raise CannotInstall("its Python prints no versions") from error


def _run(command: list[str], patience: float = PATIENCE) -> str:
    """The output of a command; raises `CannotInstall` with its last error, in one line."""
    # This command must not use settings that move packages elsewhere, or add others.
    unwanted = ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "PIP_USER")
    environment = {name: value for name, value in os.environ.items() if name not in unwanted}
    try:
        process = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=patience,
            env=environment | {"PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        )
    except subprocess.TimeoutExpired as error:
        raise CannotInstall(f"{command[0]} did not end within {patience:g} s") from error
    if process.returncode:
        raise CannotInstall(_complaint(process.stderr) or f"exit code {process.returncode}")
    return process.stdout


def _complaint(output: str) -> str:
    """The last error that pip, or else Python, reports."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:") and "for help visit" not in line]
    return (errors or lines or [""])[-1].removeprefix("ERROR: ")


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None
