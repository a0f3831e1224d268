"""Where the evidence file is and what is refused in its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.harness.results.errors import BadInput
from assay.harness.results.evidence import Evidence
from assay.harness.results.evidence_file import VERSION, default_path
from assay.harness.tests.support.evidence_files import MISFITS, of_version, refused


@pytest.mark.parametrize("cache", ["", "relative/folder"])
def test_without_a_usable_cache_variable_it_is_in_the_home_folder(monkeypatch, cache):
    monkeypatch.setenv("XDG_CACHE_HOME", cache)
    monkeypatch.setenv("HOME", "/home/of-someone")
    assert default_path() == Path("/home/of-someone/.cache/assay/evidence-2.sqlite")


def test_without_a_home_folder_the_user_is_asked_for_a_path(monkeypatch):
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(BadInput, match="--evidence=PATH"):
        default_path()


def test_no_path_opens_the_default_file_and_leaves_that_of_an_earlier_version(
    monkeypatch, tmp_path
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    earlier = tmp_path / "assay" / "evidence.sqlite"
    earlier.parent.mkdir()
    of_version(earlier, 1)
    content = earlier.read_bytes()
    with Evidence.open() as store:
        assert store.path == tmp_path / "assay" / f"evidence-{VERSION}.sqlite"
    assert store.path.is_file()
    assert earlier.read_bytes() == content


@pytest.mark.parametrize("access", [Evidence.open, Evidence.read])
@pytest.mark.parametrize("kind", MISFITS)
def test_what_is_no_evidence_file_is_refused_and_left_alone(tmp_path, kind, access):
    path = tmp_path / "e.sqlite"
    make, words = MISFITS[kind]
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(BadInput) as error:
        access(path)
    assert refused(error, path, words)
    assert (path.read_bytes() if path.is_file() else None) == before


def test_an_empty_file_becomes_an_evidence_file(tmp_path):
    path = tmp_path / "e.sqlite"
    path.touch()
    with Evidence.open(path) as store:
        assert store.runs() == []


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "e.sqlite", tmp_path / "file" / "deeper" / "e.sqlite"):
        with pytest.raises(BadInput) as error:
            Evidence.open(path)
        assert refused(error, path, "its folder cannot be used")
