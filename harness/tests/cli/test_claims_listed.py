"""`assay list` and `explain`: the catalogue from the command line; `runs` of stored evidence."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from assay.harness.checking import catalogue
from assay.harness.cli.list import PAGES
from assay.harness.cli.main import cases_of_claims, main
from assay.harness.results.errors import BadInput
from assay.harness.tests.support.evidences import law, run_of, write
from assay.harness.tests.support.sessions import ROOT


@pytest.mark.parametrize("kind", ["law", "finding"])
def test_the_pages_of_claims_are_current(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", f"--markdown={kind}"]) == 0
    name = PAGES[kind][0]
    page = (ROOT / "docs" / name).read_text()
    assert capsys.readouterr().out == page, f"run: assay list --markdown={kind} > docs/{name}"
    of_kind = [claim for claim in catalogue.claims() if claim.kind.value == kind]
    assert all(f"](../{claim.file})" in page for claim in of_kind)


def test_declarations_are_read_as_the_imported_claims_have_them() -> None:
    fields = ("id", "says", "kind", "source", "needs", "control", "bound", "enough", "toy", "slow")
    imported = [
        ([getattr(case.claim, field) for field in fields], case.file, case.name)
        for case in cases_of_claims()
    ]
    declared = [
        ([getattr(claim, field) for field in fields], claim.file, name)
        for claim in catalogue.claims()
        for name in claim.names
    ]
    assert sorted(declared, key=repr) == sorted(imported, key=repr)


def test_a_declaration_that_cannot_be_read_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims" / "test_x.py").write_text('@law("C1", unheard_of)\ndef test_x(): ...\n')
    monkeypatch.setattr(catalogue, "ROOT", tmp_path)
    monkeypatch.setattr(catalogue, "FOLDER", tmp_path / "claims")
    with pytest.raises(BadInput, match=r"test_x\.py: its claims cannot be read \(NameError"):
        catalogue.claims.__wrapped__()


def test_claims_are_listed_in_order_with_all_that_they_say(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    numbers = [(row["id"][0], int(row["id"][1:])) for row in rows]
    assert numbers == sorted(numbers)
    assert {row["kind"] for row in rows} == {"law", "finding"}
    assert all(row["claim"] and row["source"] and row["control"] for row in rows)
    assert all(row["bound"] for row in rows if row["kind"] == "finding")
    assert all((ROOT / row["file"]).is_file() for row in rows)
    assert {row["id"] for row in rows} == {claim.id for claim in catalogue.claims()}


def test_the_table_counts_laws_and_findings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    output = capsys.readouterr().out
    assert "C1" in output
    assert " laws, " in output.splitlines()[-1]


def test_a_claim_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "a4"]) == 0
    output = capsys.readouterr().out
    said = " ".join(output.split())
    for words in (
        "A4: ",
        "A finding",
        "≥ 0.95",
        "the identity",
        "claims/positions/test_position_effects.py",
    ):
        assert words in output
    assert "stackoverflow" in output.casefold() or "coderapp" in output
    assert "000 says: With tokens and positions permuted in the same way" in said
    assert "quick 256 draws or 24 descents, 300 s" in said
    assert all(len(line) <= 98 or "http" in line for line in output.splitlines())


def test_claims_that_short_profiles_leave_out_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    main(["list", "--markdown=finding"])
    page = capsys.readouterr().out
    assert "the head costs no information | standard |" in page
    assert "permuting positions costs no more than having none | standard: random" in page
    main(["explain", "costs no more than having none"])
    assert "needs --profile=standard for the variants random tokens" in capsys.readouterr().out


def test_short_profiles_leave_out_variants_that_there_are() -> None:
    for claim in catalogue.claims():
        if isinstance(claim.slow, tuple):
            for each in claim.slow:
                left_out = sum(each in variant for variant in claim.variants)
                assert 0 < left_out < len(claim.variants), (claim.id, claim.says, each)


def test_there_is_no_such_claim_to_explain(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "Z9"]) == 4
    assert "Z9: no such claim; there are A1" in capsys.readouterr().err


def test_what_evidence_holds_is_printed_without_its_control_characters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of("5.23.0", "tiny:llama")
    evidence = write(tmp_path / "evidence.sqlite", run, [law("tiny:llama")])
    with sqlite3.connect(evidence) as db:
        db.execute("UPDATE runs SET run = json_set(run, '$.started', char(27) || '[31mred')")
    assert main(["runs", str(evidence)]) in (0, 4)
    assert "\x1b[31m" not in capsys.readouterr().out
