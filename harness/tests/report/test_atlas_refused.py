"""The atlas refuses what is no evidence, and replaces nothing but an older atlas."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest

from assay.harness.cli.main import main
from assay.harness.report.atlas import build
from assay.harness.results.errors import BadInput
from assay.harness.tests.support.atlases import GPT2, MAMBA, NEW, OLD, built, data_of
from assay.harness.tests.support.defects import DOCSTRING
from assay.harness.tests.support.evidences import broken, finding, law, run_of, write


def run_main(*arguments: Any) -> int:
    return main(["atlas", *map(str, arguments)])


@pytest.mark.parametrize("what", ["missing", "empty", "text", "other", "no results", "folder"])
def test_what_is_no_evidence_is_refused_in_one_line(tmp_path, file, what, capsys):
    if what == "empty":
        file.touch()
    elif what == "text":
        file.write_text("this is no database, whatever its name says " * 40)
    elif what == "other":
        with sqlite3.connect(file) as db:
            db.execute("CREATE TABLE t (x)")
    elif what == "no results":
        write(file, run_of(NEW, refused={GPT2: "unknown"}), [])
    elif what == "folder":
        file.mkdir()
    before = sorted(tmp_path.iterdir())
    assert run_main(file, "--out", tmp_path / "atlas") == 4
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert str(file) in message
    assert sorted(tmp_path.iterdir()) == before


def test_an_output_that_is_something_else_is_refused_and_left_alone(tmp_path, file, capsys):
    write(file, run_of(NEW, GPT2), [law(GPT2)])
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "index.html").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    for out in ("file", "folder", "file/under"):
        assert run_main(file, "--out", tmp_path / out) == 4
        assert capsys.readouterr().err.count("\n") == 1
    for option in ("--defects", "--expectations"):
        assert run_main(file, "--out", tmp_path / "new", option, tmp_path / "nowhere") == 4
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "file").read_text() == "mine"


def test_an_older_atlas_is_replaced_and_kept_if_the_new_one_fails(tmp_path, file, monkeypatch):
    write(file, run_of(NEW, GPT2), [law(GPT2)])
    out = tmp_path / "deep" / "atlas"
    (none := tmp_path / "defects").mkdir()
    assert run_main(file, "--out", out, "--defects", none) == 0
    old = (out / "index.html").read_text()
    write(file, run_of(OLD, GPT2), [broken(GPT2)])

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full)
        with pytest.raises(BadInput, match="No space left"):
            build([file], out)
    assert (out / "index.html").read_text() == old
    assert [each.name for each in out.parent.iterdir()] == ["atlas"]
    assert run_main(file, "--out", out, "--defects", none) == 0
    assert (out / "index.html").read_text() != old
    assert [each.name for each in out.iterdir()] == ["index.html"]
    assert [each.name for each in out.parent.iterdir()] == ["atlas"]


def test_the_command_says_what_it_wrote(tmp_path, file, capsys):
    for _ in range(2):
        write(file, run_of(NEW, GPT2), [law(GPT2)])
    assert run_main(file, "--out", tmp_path / "atlas") == 0
    output = capsys.readouterr().out
    assert "1 result (1 older one left out)" in output


def test_an_atlas_is_written_again_from_its_page_with_the_defects_of_today(tmp_path, file):
    write(file, run_of(NEW, MAMBA, "reference"), [broken(MAMBA), finding("reference", "x", 0.1)])
    out, defects = tmp_path / "atlas", tmp_path / "defects"
    defects.mkdir()
    first = built(tmp_path, file)
    build([out / "index.html"], out)
    assert (out / "index.html").read_text() == first
    (defects / "lost.py").write_text(DOCSTRING + "print()\n")
    assert run_main(out / "index.html", "--out", out, "--defects", defects) == 0
    page = (out / "index.html").read_text()
    assert 'id="defect-lost"' in page
    assert [each[0] for each in data_of(page)["defects"]] == ["lost"]
    (out / "index.html").write_text(first.replace('id="data">', 'id="data">QUJD'))
    for path, said in (("index.html", "another version"), ("other.html", "is not an atlas")):
        (out / "other.html").write_text("mine")
        with pytest.raises(BadInput, match=said):
            build([out / path], tmp_path / "new")
