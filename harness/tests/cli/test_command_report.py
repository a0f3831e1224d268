"""`assay report`: the page of one stored run, or of several with a table of models and claims."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from assay.harness.cli.main import main
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support.evidences import broken, law, run_of, write

GPT2, MAMBA = "tiny:gpt2", "tiny:mamba"
OLD, NEW = "4.57.1", "5.0.0"


def report(*arguments: object) -> int:
    return main(["report", *map(str, arguments)])


def matrix(page: str) -> dict[str, list[str]]:
    """The rows of the table of models and claims, by their first cell."""
    (table,) = re.findall(r'<table class="matrix">(.*?)</table>', page, re.DOTALL)
    texts = {}
    for row in re.findall(r"<tr>(.*?)</tr>", table):
        row = re.sub("<small>.*?</small>", "", row)
        head, *cells = (re.sub("<.*?>", "", each) for each in row.split("</t")[:-1])
        texts[head.removeprefix("h>")] = [cell.partition(">")[2] for cell in cells]
    return texts


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "evidence.sqlite"


def test_a_page_is_written_over_no_evidence(file, tmp_path):
    write(file, run_of(NEW, GPT2), [law(GPT2)])
    other = write(tmp_path / "other.sqlite", run_of(NEW, MAMBA), [law(MAMBA)])
    before = file.read_bytes()
    for names in ([file], [f"{file}@1"], [f"{file}@all"], [other, file]):
        assert report(*names, f"--out={file}") == 4
    assert file.read_bytes() == before


def test_several_runs_are_one_matrix_of_their_latest_results(file, tmp_path):
    name = "decoding [static]"
    rows = [law(GPT2, name="decoding [dynamic]"), broken(GPT2, name=name), law(GPT2, id="C10")]
    write(file, run_of(NEW, GPT2), [law(GPT2, id="C1", verdict=Verdict.INCONCLUSIVE), *rows])
    write(file, run_of(NEW, GPT2), [law(GPT2, id="C1")])
    absent = law(MAMBA, verdict=Verdict.NOT_APPLICABLE, reason="cache: none")
    other = write(tmp_path / "other.sqlite", run_of(NEW, MAMBA), [absent])
    page = tmp_path / "page.html"
    assert report(f"{file}@all", other, f"--out={page}") == 0
    assert matrix(page.read_text()) == {
        "Model": ["C1", "C2", "C10"],
        "upheld": ["1", "", "1"],
        "refuted": ["", "1", ""],
        "inconclusive": ["", "", ""],
        "not applicable": ["", "1", ""],
        GPT2: ["✓", "✗", "✓"],
        MAMBA: ["", "–", ""],
    }
    (anchor,) = re.findall(r'<td class="refuted"><a href="#(c\d+)">', page.read_text())
    assert re.search(
        rf'<tr role="row" id="{anchor}" class="refuted".*\n.*\[static\]', page.read_text()
    )


def test_a_page_says_that_a_run_did_not_finish_and_tells_versions_apart(file, tmp_path, capsys):
    write(file, run_of(OLD, GPT2), [broken(GPT2)])
    write(file, run_of(NEW, GPT2), [law(GPT2)], finished=False)
    page = tmp_path / "page.html"
    assert report(f"{file}@2", f"--out={page}") == 0
    assert f"1 result of 1 run: {page}" in capsys.readouterr().err
    assert '<table class="matrix">' not in page.read_text()
    assert "did not finish" in page.read_text()
    assert report(f"{file}@1", f"{file}@2", f"--out={page}") == 0
    rows = matrix(page.read_text())  # a row for each version
    assert rows[f"{GPT2} · transformers {OLD}"] == ["✗"]
    assert rows[f"{GPT2} · transformers {NEW}"] == ["✓"]


def test_the_page_of_many_models_has_all_of_them_and_no_details_of_each(file, tmp_path):
    names = [f"tiny:model{i}" for i in range(30)]
    write(file, run_of(NEW, *names), [broken(name) for name in names])
    page = tmp_path / "page.html"
    assert report(file, f"--out={page}") == 0
    rows = matrix(page.read_text())
    assert rows["refuted"] == ["30"]
    assert {name: rows[name] for name in names} == {name: ["✗"] for name in names}
    assert "leaves out the margins" in page.read_text()
    assert 'id="margins"' not in page.read_text()
    assert "SHA-256 of configuration" not in page.read_text()
