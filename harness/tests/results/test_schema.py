"""The JSON report: real documents fit the schema, damaged ones do not, files are whole or old."""

from __future__ import annotations

import copy
import json
import math
import os
import stat
import subprocess
import sys
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, ValidationError

from assay.harness.results.errors import BadInput
from assay.harness.results.outputs import replace_file
from assay.harness.results.records import Counterexample, RunRecord
from assay.harness.results.schema import SCHEMA, Claim, document, write_json
from assay.harness.results.verdicts import DECADES, Kind, Result, Verdict
from assay.harness.tests.support.reports import RECORD, RESULT, RUN
from assay.harness.tests.support.sessions import ROOT


def valid(report: Any) -> bool:
    return Draft202012Validator(SCHEMA).is_valid(report)


own_names = st.text().filter(lambda name: name not in SCHEMA["$defs"]["Details"]["properties"])
"""Of details: but for those that mean the same in every law, and have a type."""

numbers = st.none() | st.floats() | st.floats(0, 1)
results = st.builds(
    Result,
    *(st.text(min_size=1), st.text(min_size=1), st.sampled_from(Kind), st.text(min_size=1)),
    *(st.sampled_from(Verdict), numbers, numbers),
    margin=st.none() | st.just(math.nan) | st.floats(-DECADES, DECADES),
    interval=st.none() | st.tuples(st.floats(), st.floats()),
    examples=st.integers(0, 10**9),
    seconds=st.floats(0, 1e6),
    reason=st.text(),
    counterexample=st.none()
    | st.dictionaries(st.text(), st.floats() | st.lists(st.floats())).map(
        Counterexample.from_json
    ),
    details=st.dictionaries(own_names, st.floats() | st.text()),
)
"""Results of every verdict, with numbers that may be missing, infinite or not a number."""


# The schema and the documents.


def test_the_schema_is_a_valid_schema_of_its_draft():
    assert Draft202012Validator.check_schema(SCHEMA) is None
    assert SCHEMA["$schema"] == Draft202012Validator.META_SCHEMA["$id"]


def test_every_key_is_described_and_no_object_has_undocumented_keys():
    records = {n: r for n, r in SCHEMA["$defs"].items() if r.get("type") == "object"}
    keys = {(n, key): said for n, r in records.items() for key, said in r["properties"].items()}
    assert [at for at, said in keys.items() if not said.get("description")] == []
    assert [name for name, record in SCHEMA["$defs"].items() if not record["description"]] == []
    loose = [n for n, r in records.items() if r.get("additionalProperties") is not False]
    assert loose == ["Details"]  # each claim's own


def test_a_claim_has_exactly_the_keys_of_a_result_but_for_its_arrays():
    keys = [field.name for field in fields(Result)]
    assert [*Claim.__struct_fields__, "sample", "plots"] == keys


def test_a_document_has_the_schema_the_run_and_the_claims():
    report = document(RECORD, [RESULT])
    assert (report["schema"], report["run"]) == (1, RUN)
    (claim,) = report["claims"]
    whole = {**RESULT.as_json(), "interval": [0.25, 0.75]}
    assert claim == {key: whole[key] for key in Claim.__struct_fields__}
    assert valid(report)


@settings(deadline=None, max_examples=50)
@given(st.lists(results, max_size=3))
def test_documents_of_any_results_fit_the_schema_and_hold_only_finite_numbers(results):
    report = document(RECORD, results)
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    Draft202012Validator(SCHEMA).validate(report)


def test_numbers_of_the_run_that_are_not_finite_become_null():
    assert document(RunRecord.from_json({**RUN, "seed": math.inf}), [])["run"]["seed"] is None


@pytest.mark.parametrize("where", ["document", "run", "subject", "claim"])
def test_a_missing_and_an_additional_key_do_not_fit(where):
    def part_of(report: dict[str, Any]) -> dict[str, Any]:
        subject = report["run"]["subjects"]["tiny:mamba"]
        return {
            "document": report,
            "run": report["run"],
            "subject": subject,
            "claim": report["claims"][0],
        }[where]

    whole = document(RECORD, [RESULT])
    later = {"document": {"bibliography"}, "claim": {"source"}}  # older reports have none
    for key in part_of(whole).keys() - later.get(where, set()):
        broken = copy.deepcopy(whole)
        del part_of(broken)[key]
        assert not valid(broken), key
    broken = copy.deepcopy(whole)
    part_of(broken)["surplus"] = 1
    assert not valid(broken)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *[("kind", "guess"), ("verdict", "passed"), ("id", ""), ("subject", None)],
        *[("observed", "0.5"), ("bound", True), ("margin", 16.1), ("interval", [1.0])],
        *[("interval", [1, 2, 3]), ("examples", 1.5), ("examples", -1), ("seconds", -0.1)],
        *[("seconds", None), ("reason", None), ("counterexample", []), ("details", None)],
    ],
)
def test_a_claim_with_a_wrong_value_does_not_fit(key, value):
    report = document(RECORD, [RESULT])
    report["claims"][0][key] = value
    with pytest.raises(ValidationError):
        Draft202012Validator(SCHEMA).validate(report)


@pytest.mark.parametrize(
    ("key", "value"),
    [("profile", "fast"), ("seed", "0"), ("threads", 0), ("versions", {"torch": "2"})],
)
def test_a_run_with_a_wrong_value_does_not_fit(key, value):
    assert not valid(document(RunRecord.from_json({**RUN, key: value}), []))


def test_another_version_of_the_schema_does_not_fit():
    assert not valid({**document(RECORD, []), "schema": 2})


# The file.


def test_the_file_holds_the_document(tmp_path):
    path = tmp_path / "new folder" / "out.json"
    write_json(path, RECORD, [RESULT])
    assert json.loads(path.read_text("utf-8")) == document(RECORD, [RESULT])


def test_half_a_surrogate_pair_in_a_token_does_not_stop_the_report(tmp_path):
    example = Counterexample.from_json({"a": "\ud800"})
    result = Result("C1", "c", Kind.LAW, "s", Verdict.REFUTED, counterexample=example)
    write_json(tmp_path / "out.json", RECORD, [result])
    text = (tmp_path / "out.json").read_text("utf-8")
    assert json.loads(text)["claims"][0]["counterexample"] == {"a": "\ud800"}


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "out.txt"
    path.write_text("something longer than what follows")
    replace_file(path, "schön\n")
    assert path.read_bytes() == "schön\n".encode()
    assert os.listdir(tmp_path) == ["out.txt"]


def test_who_reads_the_old_file_meanwhile_reads_all_of_it(tmp_path):
    path = tmp_path / "out.txt"
    path.write_text("old")
    with path.open() as reader:
        replace_file(path, "new")
        assert reader.read() == "old"
    assert path.read_text() == "new"


def test_a_new_file_has_the_permissions_that_the_user_wants(tmp_path):
    old = os.umask(0o027)
    try:
        replace_file(tmp_path / "out.txt", "")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "out.txt").stat().st_mode) == 0o640


def test_a_link_stays_a_link(tmp_path):
    link, target = tmp_path / "link", tmp_path / "target"
    link.symlink_to(target)
    replace_file(link, "text")
    assert link.is_symlink()
    assert target.read_text() == "text"


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
        ("file/deeper/out.json", "Not a directory"),
        ("/proc/out.json", "cannot be written"),
        ("/dev/full", "No space left on device"),
        ("loop/out.json", "cannot be written"),
        ("x" * 300, "File name too long"),
    ],
)
def test_a_path_that_cannot_be_written_is_bad_input(tmp_path, path, words):
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(BadInput) as error:
        write_json(tmp_path / path, RECORD, [RESULT])
    assert str(tmp_path / path) in str(error.value)
    assert words in str(error.value)
    assert "\n" not in str(error.value)
    assert sorted(os.listdir(tmp_path)) == ["file", "loop"]


def test_a_disk_that_fills_up_leaves_the_old_file_whole(tmp_path):
    """In a process that may write files of 4 KiB, which is less than the new one."""
    code = """if True:
        import resource, sys
        from assay.harness.results.errors import BadInput
        from assay.harness.results.outputs import replace_file
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        try:
            replace_file(sys.argv[1], "x" * 5000)
        except BadInput as error:
            print(error)
    """
    path = tmp_path / "out.json"
    path.write_text("old")
    command = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == f"{path}: cannot be written (File too large); give another path\n"
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["out.json"]
