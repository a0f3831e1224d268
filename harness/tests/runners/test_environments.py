"""Environments laid over this one, by pip itself, on packages made here: no network."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from assay.harness.results.errors import BadInput
from assay.harness.runners import environments
from assay.harness.runners.environments import CannotInstall, prepare, released


def wheel(folder: Path, version: str, code: str = "", needs: str = "") -> None:
    """A package ``toy`` with one module, written by hand."""
    info = f"toy-{version}.dist-info"
    required = f"Requires-Dist: {needs}\n" if needs else ""
    with zipfile.ZipFile(folder / f"toy-{version}-py3-none-any.whl", "w") as file:
        file.writestr("toy.py", code or f"VERSION = {version!r}\n")
        file.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: toy\nVersion: {version}\n{required}"
        )
        tag = "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        file.writestr(f"{info}/WHEEL", tag)
        file.writestr(f"{info}/RECORD", "")


@pytest.fixture
def toys(tmp_path, monkeypatch):
    """Toys in four versions, and pip with nothing else to choose from."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    wheel(folder, "1.0")
    wheel(folder, "2.0")
    wheel(folder, "3.0rc1")
    wheel(folder, "4.0", "raise RuntimeError('made for another age')")
    wheel(folder, "5.0", needs="torch<1")
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setattr(environments, "IMPORTS", "import rich, toy")
    monkeypatch.setattr(environments, "SHOWN", ("toy",))
    return folder


def test_an_environment_has_what_was_asked_for_over_what_is_here(toys, tmp_path):
    folder = tmp_path / "environment"
    environment = prepare(folder, ["toy==1.0"])
    assert environment.versions == {"toy": "1.0"}
    assert environment.python.is_file()
    toys.rename(tmp_path / "gone")
    assert prepare(folder, ["toy==1.0"]) == environment  # it is there: pip is not asked again
    (tmp_path / "gone").rename(toys)
    (folder / environments.MARK).unlink()  # as if it had not been finished
    assert prepare(folder, ["toy==2.0"]).versions == {"toy": "2.0"}


@pytest.mark.parametrize(
    ("requirement", "why"),
    [
        ("toy==9.9", "No matching distribution found for toy==9.9"),
        ("toy==4.0", "is installed but cannot be imported .*made for another age"),
        ("toy==5.0", "conflicting dependencies|conflict"),  # it asks for another torch
    ],
)
def test_what_cannot_be_had_is_told_in_one_line_and_leaves_nothing(
    toys, tmp_path, requirement, why
):
    with pytest.raises(CannotInstall, match=why) as raised:
        prepare(tmp_path / "environment", [requirement])
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "environment").exists()


def test_a_folder_that_holds_something_else_stays(toys, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(BadInput, match="exists already and is not an environment"):
        prepare(tmp_path / "mine", ["toy==1.0"])
    assert (tmp_path / "mine" / "thesis.txt").exists()


def test_released_versions_are_in_order_without_those_before_their_release(toys):
    assert [str(version) for version in released("toy")] == ["1.0", "2.0", "4.0", "5.0"]
    with pytest.raises(CannotInstall, match="No matching distribution found for nothing-of-this"):
        released("nothing-of-this")
