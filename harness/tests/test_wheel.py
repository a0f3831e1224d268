"""The wheel: one package, with all that the claims need, which runs from an empty folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest

from assay.harness.tests.support.sessions import ROOT

pytestmark = pytest.mark.nightly

NOT_COPIED = shutil.ignore_patterns(".*", "build", "dist", "mutants", "*.egg-info", "__pycache__")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    sources = folder / "sources"
    shutil.copytree(ROOT, sources, ignore=NOT_COPIED)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, sources]
    subprocess.run(command, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of packages with what the wheel installs, before those that are here."""
    folder = tmp_path_factory.mktemp("packages")
    with ZipFile(wheel) as opened:
        opened.extractall(folder)
    return folder


def run(installed: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """``python -m …`` with the installed package, in an empty folder."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    kept |= {"PYTHONPATH": str(installed), "XDG_CACHE_HOME": str(folder.parent / "cache")}
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=folder,
        env=kept | {"COLUMNS": "160"},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_nothing_is_installed_but_the_package(wheel: Path) -> None:
    with ZipFile(wheel) as opened:
        names = opened.namelist()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["name"]
    assert project != "assay", "PyPI has another distribution of this name"
    distribution = project.replace("-", "_")
    assert wheel.name.startswith(f"{distribution}-")
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"assay", distribution}
    assert not [name for name in names if "/tests/" in name]


def test_every_package_of_the_clone_is_in_it(wheel: Path) -> None:
    with ZipFile(wheel) as opened:
        names = set(opened.namelist())
    for room in ("benchmarks", "claims", "fixtures", "harness"):
        paths = [p.relative_to(ROOT) for p in (ROOT / room).rglob("*.py")]
        sources = [p for p in paths if "tests" not in p.parts and "package" not in p.parts]
        assert sources
        missing = [p for p in sources if f"assay/{p.as_posix()}" not in names]
        assert not missing, "list its package in pyproject.toml"
    data = [*(ROOT / "claims/expectations").iterdir(), *(ROOT / "fixtures").rglob("weights/**/*")]
    files = [p.relative_to(ROOT).as_posix() for p in data if p.is_file()]
    assert len(files) > 50
    assert not [name for name in files if f"assay/{name}" not in names]


def test_the_settings_of_an_install_are_those_of_a_clone() -> None:
    ini = (ROOT / "harness/package/assay/pytest.ini").read_text()
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"][
        "ini_options"
    ]
    shared = [each for each in settings["addopts"] if not each.startswith("--ignore")]
    assert shared
    assert all(each in ini for each in shared)
    assert f"apart = {' '.join(settings['apart'])}\n" in ini


def test_claims_run_from_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    command = ("assay", "check", "tiny:llama", "--claim=C1", "--profile=glance")
    done = run(installed, folder, *command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 upheld" in done.stdout
    assert [*folder.iterdir()] == []


def test_importing_the_package_imports_no_torch(installed: Path) -> None:
    code = (
        "import sys, assay; print(sorted({'torch', 'transformers', 'numpy'} & set(sys.modules)))"
    )
    process = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stdout.strip() == "[]"
