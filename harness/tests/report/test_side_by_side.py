"""The tables of docs/real-models.md: each claim is in one of them, with every model's verdict."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from assay.harness.tests.support import side_by_side
from assay.harness.tests.support.sessions import ROOT


def claim(id, verdict, kind="law", name="a law", source="004, answer 1", margin=0.7, **more):
    numbers = {"observed": 0.5, "margin": margin, "interval": None} | more
    shape = {"id": id, "name": name, "kind": kind, "verdict": verdict, "source": source}
    return {"subject": "path/of/it"} | shape | {"reason": "", **numbers}


def run(path: Path, *claims, profile="glance"):
    subject = dict.fromkeys(side_by_side.SAID, 3)
    record = {"subjects": {"path/of/it": subject, "toy": subject}, "profile": profile}
    record["versions"] = {"torch": "2", "transformers": "5"}
    path.write_text(json.dumps({"run": record, "claims": claims}))
    return str(path)


@pytest.fixture
def page(tmp_path):
    """Writes the page from runs by model, and returns the table of each row's label, and all."""
    (tmp_path / "page.md").write_text("By hand.\n")

    def written(**runs):
        named = [f"{name}={path}" for name, path in runs.items()]
        side_by_side.main(str(tmp_path / "kept.json"), str(tmp_path / "page.md"), *named)
        text = (tmp_path / "page.md").read_text()
        assert text.startswith("By hand.\n" + side_by_side.MARK)
        parts = re.split("^## (.*)$", text, flags=re.MULTILINE)[1:]
        return {
            row.split(" | ")[0].removeprefix("| "): (
                title,
                row.removesuffix(" |").split(" | ")[1:],
            )
            for title, rows in zip(parts[::2], parts[1::2], strict=True)
            for row in rows.strip().splitlines()[2:]
        }

    return written


def test_a_claim_is_where_its_verdicts_put_it(page, tmp_path):
    mean = {"kind": "finding", "observed": 0.5, "interval": [0.4, 0.6]}
    one = run(
        tmp_path / "one.json",
        claim("C1", "upheld"),
        claim("C2", "upheld", name="another"),
        claim("E10", "refuted", name="a finding [as documented]", **mean),
        claim("A1", "upheld", name="of the first alone"),
        claim("F4", "refuted", name="of Assay's own networks", subject="toy"),
        claim("H1", "refuted", name="beyond", source="beyond the documents"),
    )
    other = run(
        tmp_path / "other.json",
        claim("C1", "upheld", margin=16.0),
        claim("C2", "refuted", name="another [static]", margin=-0.1),
        claim("C2", "upheld", name="another [dynamic]"),
        claim("C2", "inconclusive", name="another [quantised]"),
        claim(
            "E10", "inconclusive", name="a finding [as documented]", **mean | {"observed": None}
        ),
        claim("E9", "not applicable", name="not for it"),
    )
    rows = page(one=one, other=other)
    assert rows == {
        "C2 another": (side_by_side.DIFFER, ["✓ +0.7", "✗ -0.1 (1 of 3 undecided)"]),
        "C1 a law": (side_by_side.AGREE, ["✓ +0.7", "✓"]),
        "E10 a finding [as documented]": (side_by_side.LONE, ["✗ 0.50 [0.40, 0.60]", "?"]),
    }
    assert page() == rows  # from what is stored


def test_the_page_is_that_of_what_is_stored():
    stored = json.loads((ROOT / "docs" / "real-models.json").read_text())
    text = (ROOT / "docs" / "real-models.md").read_text()
    assert text.partition(side_by_side.MARK)[2] == "\n" + side_by_side.page(stored)
    assert len(text.splitlines()) <= 250
