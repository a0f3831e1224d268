"""Pictures of intervals: every finding with an interval is in them, at its numbers."""

from __future__ import annotations

import json
import re

from assay.harness.tests.support import interval_pictures


def finding(
    name, verdict="upheld", observed=0.5, interval=(0.4, 0.6), claimed="mean > 0", id="E6"
):
    details = {"claimed": claimed}
    shape = {"id": id, "name": name, "verdict": verdict, "observed": observed, "bound": 0.0}
    return shape | {"interval": interval and [*interval], "details": details}


def test_a_claim_number_has_a_picture_with_a_row_for_each_finding(tmp_path):
    run = tmp_path / "run.json"
    claims = [
        finding("a first one"),
        finding("another", "refuted", -0.2, (-0.3, -0.1)),
        finding("of another bound", claimed="share ≥ 0.9"),
        finding("open below", interval=(None, 0.7)),
        finding("open above", interval=(0.4, None)),
        finding("without an interval", "inconclusive", None, None),
        finding("of another number", id="E7"),
    ]
    run.write_text(json.dumps({"claims": claims}))
    for folder in ("pictures", "again"):
        interval_pictures.main(str(run), str(tmp_path / folder), "E6")
    (path,) = (tmp_path / "pictures").iterdir()
    text = path.read_text()
    assert path.name == "E6.svg"
    for words in ("a first one", "another", "of another bound", "0.50 [0.40, 0.60]  upheld"):
        assert words in text
    assert all(words in text for words in ("refuted", "open below", "open above"))
    assert text.count("claimed: ") == 2
    assert not re.search("without an interval|of another number", text)
    assert (tmp_path / "again" / "E6.svg").read_text() == text
