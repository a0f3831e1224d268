"""The JSON report: it is read as it was written, and files are whole or old."""

from __future__ import annotations

import json
import os

import msgspec
import pytest

from assay.harness.results.errors import BadInput
from assay.harness.results.outputs import replace_file
from assay.harness.results.schema import Report, document, read_json, write_json
from assay.harness.tests.support.sample_runs import sample, sample_run


def test_a_document_is_read_as_it_was_and_has_no_other_keys(tmp_path):
    written = json.loads(document(sample_run(), sample()))
    written["run"]["another key"] = 1
    with pytest.raises(msgspec.ValidationError, match="another key"):
        msgspec.convert(written, Report)
    write_json(tmp_path / "out.json", sample_run(), sample())
    assert read_json(tmp_path / "out.json") == (sample_run(), sample())


# The file.


def test_a_file_is_replaced_a_link_stays_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "out.txt"
    path.write_text("something longer than what follows")
    replace_file(path, "schön\n")
    assert path.read_bytes() == "schön\n".encode()
    assert os.listdir(tmp_path) == ["out.txt"]
    (link := tmp_path / "link").symlink_to(path)
    replace_file(link, "new")
    assert link.is_symlink()
    assert path.read_text() == "new"


def test_a_pipe_is_written_to_as_it_is():
    reading, writing = os.pipe()
    replace_file(f"/dev/fd/{writing}", "text")
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert pipe.read() == "text"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (".", "Is a directory"),
        ("file/out.json", "its folder is a file"),
        ("/proc/out.json", "cannot be written"),
        ("/dev/full", "No space left on device"),
        ("loop/out.json", "cannot be written"),
    ],
)
def test_a_path_that_cannot_be_written_is_bad_input(tmp_path, path, words):
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(BadInput) as error:
        write_json(tmp_path / path, sample_run(), sample())
    assert str(tmp_path / path) in str(error.value)
    assert words in str(error.value)
    assert "\n" not in str(error.value)
    assert sorted(os.listdir(tmp_path)) == ["file", "loop"]
