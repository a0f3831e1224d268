"""Claims run on the model of another project, which keeps its own expectations."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import pytest
import torch

from assay.harness.tests.support import folders
from assay.harness.tests.support.sessions import ROOT, Project, Session

CLAIMS = str(ROOT / "claims" / "positions" / "test_position_table.py")
EXPECTED = "--expectations=expected"
TABLE = "transformer.wpe.weight"


@pytest.fixture
def own(project: Project) -> Path:
    """A project outside of the clone: a trained model, a test and a conftest.py of its own."""
    folder = project.folder.parent / "own"
    weights = ROOT / "fixtures" / "reference" / "weights"
    shutil.copytree(weights / "small", folder / "my-model")
    shutil.copytree(weights / "tokenizer", folder / "my-model", dirs_exist_ok=True)
    (folder / "conftest.py").write_text("raise RuntimeError('not of Assay's business')\n")
    (folder / "pyproject.toml").write_text("[tool.pytest.ini_options]\naddopts = '--no-such'\n")
    return folder


def check(project: Project, own: Path, *arguments: str) -> Session:
    """What a project's own CI runs, in the project's folder."""
    usual = ["--model=my-model", *arguments]
    return project.run(CLAIMS, *usual, folder=own, COLUMNS="500")


def test_what_was_recorded_once_is_compared_with_every_later_run(
    project: Project, own: Path
) -> None:
    before = folders.listing(ROOT / "claims" / "expectations")
    assert check(project, own, EXPECTED).refused("no such folder; --expectations=record:FOLDER")

    first = check(project, own, "--expectations=record:expected")
    assert first.exit == 0, first.output
    (path,) = (own / "expected").iterdir()
    recorded = tomllib.loads(path.read_text())
    assert recorded["model"] == "my-model"
    named = [text for row in recorded["claim"] for text in row.get("claims", [row.get("id")])]
    assert {text.partition(":")[0] for text in named} == {"A10", "A11", "A12"}
    assert folders.listing(ROOT / "claims" / "expectations") == before

    again = check(project, own, EXPECTED)
    assert again.exit == 0, again.output

    def shuffle(held: dict[str, torch.Tensor]) -> None:
        order = torch.randperm(len(held[TABLE]), generator=torch.Generator().manual_seed(0))
        held[TABLE] = held[TABLE][order]

    folders.edit_weights(own / "my-model", shuffle)
    changed = check(project, own, EXPECTED)
    assert changed.exit == 1, changed.output
    says = "neighbouring positions are more similar than random pairs"
    assert f"A10 ({says}) on my-model is refuted, but" in changed.output
    assert f"{path}, claim 1 ('A10') expects upheld, which no longer matches" in changed.output
    # What the order of the rows does not touch is as it was.
    assert "A11 (" not in changed.output
