"""Environments beside this one: other versions of a package, over all else that is here.

An environment is a venv whose own packages come before those of the Python that runs now.  So
only what a requirement changes is installed, in seconds and megabytes: another transformers with
the tokenizers and the huggingface_hub that it asks for.  torch is never changed.
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
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from assay.harness.results.errors import BadInput

KEPT = ("torch",)
"""Packages that stay as they are: pip may not choose another version of these."""

MARK = "assay-environment.json"
"""Written last: an environment without it was not finished and is made anew."""

SHOWN = ("transformers", "tokenizers", "huggingface_hub", "torch")
LOOK = f"""
import importlib.metadata, json, torch, transformers
transformers.PreTrainedModel, transformers.AutoModelForCausalLM
print(json.dumps({{name: importlib.metadata.version(name) for name in {SHOWN}}}))
"""
"""Run in a new environment: are its packages of one mind, and which are they?"""

CHECK = """
import importlib.metadata, json, sys
print(json.dumps({name: importlib.metadata.version(name) for name in sys.argv[1:]}))
"""
"""Run in an environment that was made before: does it still see its packages?"""

PATIENCE = 1800.0
"""Seconds that pip may take."""


class CannotInstall(Exception):
    """An environment cannot be had, and why, in one line."""


@dataclass(frozen=True)
class Environment:
    """A Python with other packages: its executable, and what versions it sees."""

    python: Path
    versions: dict[str, str]


def made(folder: Path, requirements: Sequence[str]) -> Environment:
    """The environment in ``folder`` in which ``requirements`` hold; made unless it is there.

    Raises `CannotInstall`, and `BadInput` where the folder holds something else or is damaged.
    """
    asked = _asked(requirements)
    if (there := _read(folder / MARK)) is not None and there.get("asked") == asked:
        if damage := _damage(folder, there["versions"]):
            raise BadInput(f"{folder}: is damaged ({damage}); remove it, and it is made anew")
        return Environment(_python(folder), there["versions"])
    if folder.exists():
        if any(folder.iterdir()) and not (folder / "pyvenv.cfg").is_file():
            raise BadInput(f"{folder}: is there already and is no environment")
        shutil.rmtree(folder)
    try:
        _lay(folder)
        _install(folder, requirements)
        versions = _look(_python(folder))
        (folder / MARK).write_text(json.dumps({"asked": asked, "versions": versions}) + "\n")
    except (OSError, ValueError) as error:  # venv refuses a path with a colon by the latter
        shutil.rmtree(folder, ignore_errors=True)
        raise CannotInstall(str(error)) from error
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return Environment(_python(folder), versions)


def _damage(folder: Path, versions: dict[str, str]) -> str:
    """What has become of an environment since it was made; empty where it is as it was."""
    names = [*versions, "pytest"]
    try:
        said = _run([str(_python(folder)), "-c", CHECK, *names])
        found = json.loads(said.splitlines()[-1])
    except (CannotInstall, OSError) as error:
        return str(error)
    except (ValueError, IndexError):
        return "its Python says nothing"
    wrong = [name for name in versions if found[name] != versions[name]]
    return ", ".join(f"{name} is {found[name]}, was {versions[name]}" for name in wrong)


def having(folder: Path, package: str, version: str) -> Environment:
    """An environment with this version and nothing else: one of those in ``folder``, or a new one.

    Raises as `made` does.
    """
    for mark in sorted(folder.glob(f"*/{MARK}")):
        there = _read(mark) or {}
        requirements = (there.get("asked") or {}).get("requirements") or []
        if (
            len(requirements) == 1
            and requirements[0].startswith(f"{package}==")
            and there["asked"] == _asked(requirements)
            and there["versions"].get(package) == version
            and not _damage(mark.parent, there["versions"])
        ):
            return Environment(_python(mark.parent), there["versions"])
    return made(folder / f"{package}-{version}", [f"{package}=={version}"])


def released(package: str) -> list[Version]:
    """Versions of ``package`` that pip can have here, oldest first.

    Pre-releases, yanked versions and those for other Pythons are left out.  Raises
    `CannotInstall`.
    """
    said = _run([sys.executable, "-m", "pip", "index", "versions", package])
    prefix = "Available versions:"
    lines = [line for line in said.splitlines() if line.startswith(prefix)]
    if not lines:
        raise CannotInstall(f"pip does not say which versions of {package} there are")
    found = []
    for text in lines[0].removeprefix(prefix).split(","):
        try:
            found.append(Version(text.strip()))
        except InvalidVersion:
            continue
    return sorted(found)


def _asked(requirements: Sequence[str]) -> dict[str, Any]:
    """What an environment is made of; another one of these makes another environment."""
    return {
        "requirements": list(requirements),
        "kept": _kept(),
        "python": platform.python_version(),
        "over": _packages(),
    }


def _kept() -> list[str]:
    return [f"{name}=={importlib.metadata.version(name)}" for name in KEPT]


def _packages() -> list[str]:
    """The folders of packages that this Python looks in, in its order."""
    return [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]


def _python(folder: Path) -> Path:
    return folder.joinpath(*(("Scripts", "python.exe") if os.name == "nt" else ("bin", "python")))


def _lay(folder: Path) -> None:
    """An empty venv in ``folder`` that sees the packages that are seen here, after its own."""
    venv.EnvBuilder(symlinks=os.name != "nt").create(folder)
    paths = {"base": str(folder), "platbase": str(folder)}
    own = Path(sysconfig.get_path("purelib", "venv", vars=paths))
    # By addsitedir, so that editable installs, which are .pth files themselves, are seen, too.
    lines = [f"import site; site.addsitedir({path!r})" for path in _packages()]
    (own / "assay-over.pth").write_text("\n".join(lines) + "\n")


def _install(folder: Path, requirements: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        constraints = Path(scratch, "constraints.txt")
        constraints.write_text("\n".join(_kept()) + "\n")
        pip = [str(_python(folder)), "-m", "pip", "install", "--quiet", "--no-compile"]
        _run([*pip, "--constraint", str(constraints), *requirements])


def _look(python: Path) -> dict[str, str]:
    """The versions that an environment sees, once its packages have been imported."""
    try:
        versions: dict[str, str] = json.loads(_run([str(python), "-c", LOOK]).splitlines()[-1])
    except CannotInstall as error:
        raise CannotInstall(f"is installed but cannot be imported ({error})") from error
    return versions


def _run(command: list[str]) -> str:
    """The output of a command; its last complaint, in one line, as `CannotInstall`."""
    # Settings that send packages elsewhere, or that add others, are not meant for here.
    unwanted = ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "PIP_USER")
    environment = {name: value for name, value in os.environ.items() if name not in unwanted}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            env=environment | {"PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        )
    except subprocess.TimeoutExpired as error:
        raise CannotInstall(f"pip did not end within {PATIENCE:g} s") from error
    if done.returncode:
        raise CannotInstall(_complaint(done.stderr) or f"exit code {done.returncode}")
    return done.stdout


def _complaint(said: str) -> str:
    """The last error that pip, or else Python, tells of."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:") and "for help visit" not in line]
    return (errors or lines or [""])[-1].removeprefix("ERROR: ")


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None
