"""The JSON report: its schema describes what is written, and files are whole or old."""

from __future__ import annotations

import json
import os

import pytest
from jsonschema import Draft202012Validator

from assay.harness.results.errors import BadInput
from assay.harness.results.outputs import replace_file
from assay.harness.results.schema import SCHEMA, document, read_json, write_json
from assay.harness.tests.support.sample_runs import sample, sample_run


def test_every_key_is_described_and_required_and_no_object_has_undocumented_keys():
    assert Draft202012Validator.check_schema(SCHEMA) is None
    records = {n: r for n, r in SCHEMA["$defs"].items() if r.get("type") == "object"}
    keys = {(n, key): said for n, r in records.items() for key, said in r["properties"].items()}
    assert [at for at, said in keys.items() if not said.get("description")] == []
    assert [name for name, record in SCHEMA["$defs"].items() if not record["description"]] == []
    loose = [n for n, r in records.items() if r.get("additionalProperties") is not False]
    assert loose == ["Details"]  # each claim's own
    optional = {key for n, key in keys if key not in records[n]["required"]}
    assert optional == {*records["Details"]["properties"], "does not apply"}


def test_a_document_fits_its_schema_and_is_read_as_it_was(tmp_path):
    Draft202012Validator(SCHEMA).validate(json.loads(document(sample_run(), sample())))
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
