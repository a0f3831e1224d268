"""`assay counts`: models by their verdicts on each claim, and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.harness.cli import counts
from assay.harness.cli.main import main
from assay.harness.report.atlas import build
from assay.harness.results.expectations import Expectations, Expected
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.evidences import broken, law, run_of, write


def row(subject, verdict, name="holds", claim="G7", reason="", recorded="1"):
    """What `Evidence.every` says of a check."""
    return {
        **{"claim": claim, "name": name, "subject": subject, "verdict": verdict},
        **{"reason": reason, "recorded": recorded},
    }


def counted(*rows, expected=()):
    return counts.cells("G7", counts.count(rows, dict(expected))["G7"])


def test_each_model_counts_once_by_the_worst_of_a_claims_variants():
    cells = counted(
        row("tiny:a", "upheld"),
        row("tiny:a", "refuted", name="other"),
        row("tiny:b", "upheld"),
        row("tiny:b", "not applicable", name="other", reason="cache: none"),
        row("tiny:c", "inconclusive"),
        row("tiny:d", "not applicable", reason="cache: the model has none"),
    )
    assert cells == ["G7", "1", "1", "1", "1", "no expectation (1)", "cache (1)"]


def test_the_latest_result_of_a_check_counts():
    cells = counted(row("tiny:a", "upheld", recorded="2"), row("tiny:a", "refuted", recorded="1"))
    assert cells[1:3] == ["1", "0"]


def test_a_defect_is_named_by_its_script():
    reason = "transformers errs (docs/defects/some_defect.py)"
    entry = Expected(Verdict.REFUTED, reason, "a file")
    known = Expectations("tiny:a", Path("a.toml"), "float32", {("G7", "holds"): entry})
    cells = counted(
        row("tiny:a", "refuted"), row("tiny:b", "refuted"), expected={"tiny:a": known}.items()
    )
    assert cells[5] == "no expectation (1), some_defect (1)"


def test_rare_reasons_are_counted_together():
    rows = [row(f"tiny:{n}", "not applicable", reason=f"{n}: none") for n in "abcdef"]
    assert counted(*rows)[6] == "a (1), b (1), c (1), d (1), 2 others"


def test_claims_are_in_the_order_of_their_numbers():
    rows = [row("tiny:a", "upheld", claim=claim) for claim in ("G10", "A15", "G2")]
    assert list(counts.count(rows, {})) == ["A15", "G2", "G10"]


@pytest.mark.parametrize("form", [[], ["--markdown"]])
def test_the_command_reads_evidence(before, capsys, form):
    assert main(["counts", str(before), "--claim", "C*", *form]) == 0
    assert "upheld" in capsys.readouterr().out


def test_a_claim_without_results_is_said(before, capsys):
    assert main(["counts", str(before), "--claim", "Z9"]) == 4
    assert "no results of Z9" in capsys.readouterr().err


def test_the_page_of_an_atlas_is_counted_in_its_newest_version(tmp_path, capsys):
    file, out = tmp_path / "evidence.sqlite", tmp_path / "atlas"
    write(file, run_of("4.57.1", "tiny:a"), [law("tiny:a")])
    lack = law("tiny:b", verdict=Verdict.NOT_APPLICABLE, reason="kv-cache: it keeps no keys")
    write(file, run_of("5.0.0", "tiny:a", "tiny:b"), [broken("tiny:a"), lack])
    build([file], out)
    assert main(["counts", str(out / "index.html"), "--claim=C2", "--markdown"]) == 0
    row = "| C2 | 0 | 1 | 0 | 1 | no expectation (1) | kv-cache (1) |"
    assert capsys.readouterr().out.splitlines()[-1] == row
