"""`assay compare` refuses what cannot be compared, in one line."""

from __future__ import annotations

import json
import math

import pytest

from assay.harness.results import schema
from assay.harness.results.evidence import Evidence
from assay.harness.tests.support.comparing import compare


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"claims": 5}', "is not a report of a run"),
        ('{"schema": 99, "claims": [], "run": {}}', "Invalid enum value 99 - at `$.schema`"),
        ('{"claims": ', "is not a report of a run"),
        ("[" * 3000, "is not a report of a run"),
        ("[]", "is not a report of a run"),
    ],
)
def test_a_report_that_is_none_is_refused(tmp_path, text, words, capsys):
    path = tmp_path / "r.json"
    path.write_text(text)
    assert compare(path, path) == 4
    assert words in capsys.readouterr().err


def test_a_report_whose_entries_are_of_other_types_is_refused(before, tmp_path, capsys):
    with Evidence.read(before) as store:
        (run,) = store.runs()
        written = schema.document(run, store.results(run.id))
    path = tmp_path / "r.json"
    changes = [
        lambda report: report["claims"][0].update(margin="1"),
        lambda report: report["run"].update(subjects={"tiny:llama": []}),
        lambda report: report["claims"][0]["details"].update(gap=math.inf),
    ]
    for change in changes:
        report = json.loads(written)
        change(report)
        path.write_text(json.dumps(report))
        assert compare(before, path) == 4
        error = capsys.readouterr().err
        assert f"{path}: is not a report of a run (write one with --json): " in error
        assert error.count("\n") == 1
    path.write_text(written)
    assert compare(f"{path}@1", before) == 4
    assert "so no evidence with runs to choose" in capsys.readouterr().err
