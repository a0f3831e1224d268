"""The dtype of a run: resolved in the evidence, and the same for a run that is resumed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from assay.harness.plugin.recording import beyond_rounding
from assay.harness.results import expectation_files
from assay.harness.results.evidence import Evidence
from assay.harness.results.verdicts import Verdict
from assay.harness.tests.support import folders
from assay.harness.tests.support.claims_text import LAWS
from assay.harness.tests.support.sessions import Project, law


@pytest.fixture
def half(tmp_path: Path) -> Path:
    """A checkpoint in bfloat16."""
    folder = tmp_path / "half"
    folders.tiny("gpt2").to(torch.bfloat16).save_pretrained(folder)
    return folder


@pytest.mark.nightly
def test_the_evidence_has_the_dtype_of_each_model(project: Project, half: Path) -> None:
    project.claims(law(1))
    models = (f"--model={half}", "--model=tiny:gpt2")
    run = project.run(*models, "-n", "2", "--json=out.json")
    assert run.exit == 0
    report = project.json()["run"]
    assert report["dtype"] == "bfloat16, float32"
    dtypes = {name: each["dtype"] for name, each in report["subjects"].items()}
    assert dtypes == {str(half): "bfloat16", "tiny:gpt2": "float32"}
    assert report["selection"]["dtype"] == "auto"
    with Evidence.read(project.folder / "evidence.sqlite") as evidence:
        (run,) = evidence.runs()
        assert {name: run.dtype_of(name) for name in run.subjects} == dtypes


def test_what_only_float32_shows_is_one_line(project: Project, half: Path) -> None:
    project.claims(law(1))
    own = project.run(f"--model={half}")
    (line,) = [line for line in own.output.splitlines() if "--dtype=float32" in line]
    assert [line] == beyond_rounding(["bfloat16"])
    assert "faults of 0.001 of a row, or of 0.1" in line
    assert line.endswith("they see 1e-05")
    assert "--dtype=float32" not in project.run().output


def test_a_run_in_the_same_dtype_is_resumed_however_it_is_named(
    project: Project, half: Path
) -> None:
    project.claims(*LAWS)
    model = f"--model={half}"
    assert project.run(model, "-x").exit == 1
    other = project.run(model, "--resume", "--dtype=float32", "-x").output
    assert "nothing to resume" in other
    assert "resuming the run" in project.run(model, "--resume", "--dtype=bfloat16", "-x").output
    folders.edit_json(half / "config.json", dtype="float16")
    assert "nothing to resume" in project.run(model, "--resume", "-x").output


def test_expectations_are_those_of_the_models_own_dtype(project: Project, half: Path) -> None:
    project.claims(law(1, "2.0"))
    folder = project.folder / "expected"
    record = (f"--expectations=record:{folder}",)
    assert project.run(f"--model={half}", *record).exit == 1
    (path,) = folder.iterdir()
    assert 'dtype = "bfloat16"' in path.read_text()
    path.write_text(path.read_text().replace('reason = ""', 'reason = "known"'))
    (read,) = expectation_files.load(folder).values()
    assert [entry.verdict for entry in read.entries.values()] == [Verdict.REFUTED]
    # The same claim upheld is unexpected in the dtype of the file alone.
    project.claims(law(1))
    assert project.run(f"--model={half}", f"--expectations={folder}").exit == 1
    assert project.run(f"--model={half}", f"--expectations={folder}", "--dtype=float32").exit == 0
