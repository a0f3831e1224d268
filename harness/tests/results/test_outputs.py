"""Two outputs on one file, or an output on an input: refused before anything is run."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

import pytest

from assay.harness.results import outputs
from assay.harness.results.errors import BadInput
from assay.harness.results.outputs import keep_apart
from assay.harness.runners import sweep
from assay.harness.tests.support import folders
from assay.harness.tests.support.sessions import Project, law


def digests(folder: Path) -> dict[Path, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture
def ran(project: Project) -> Project:
    """A run whose evidence is there, and a model's folder."""
    project.claims(law(1, "0.0"))
    assert project.run("--json=before.json").exit == 0
    folders.tiny("gpt2").save_pretrained(project.folder / "model")
    os.link(project.folder / "evidence.sqlite", project.folder / "hard.sqlite")
    (project.folder / "link.sqlite").symlink_to("evidence.sqlite")
    (project.folder / "map.json").write_text('{"": "cpu"}')
    return project


COLLIDING = {
    "evidence and report": ["--evidence=evidence.sqlite", "--report=./x/../evidence.sqlite"],
    "by a hard link": ["--evidence=evidence.sqlite", "--report=hard.sqlite"],
    "that is not there yet": ["--json=new", "--report=new"],
    "JUnit's": ["--json=out.xml", "--junitxml=out.xml"],
    "a model's": ["--model=model", "--json=model/config.json"],
    "a device map": ["--model=model", "--device-map=map.json", "--json=map.json"],
}


def test_a_run_writes_nothing_twice_and_nothing_that_it_reads(ran: Project) -> None:
    before = digests(ran.folder)
    ended = ran.runs(*COLLIDING.values())
    for (what, arguments), run in zip(COLLIDING.items(), ended, strict=True):
        assert run.refused(arguments[-1].partition("=")[0].replace("--junitxml", "--json")), what
    after = digests(ran.folder)
    assert {path: after[path] for path in before} == before | {
        path: after[path] for path in before if path.name == "output"
    }
    assert ran.ran == ["1"]


IN_A_MODEL = {
    "--evidence": ["--evidence=model/new.sqlite"],
    "--json": ["--json=model/new.json"],
    "--report": ["--report=model/new/deep.html"],
    "--report (Markdown)": ["--report=by_link/new.md"],
    "--junitxml": ["--junitxml=model/new.xml"],
    "--expectations": ["--expectations=record:model/expected"],
}


def test_nothing_is_written_into_a_model_s_folder_or_deleted_from_it(ran: Project) -> None:
    (ran.folder / "by_link").symlink_to("model")
    before = digests(ran.folder / "model") | digests(ran.folder / "claims")
    evidence = (ran.folder / "evidence.sqlite").read_bytes()
    commands = [["--model=model", *arguments] for arguments in IN_A_MODEL.values()]
    ended = ran.runs(*commands)
    for name, run in zip(IN_A_MODEL, ended, strict=True):
        assert run.refused(name.strip()), run.output
    assert before == digests(ran.folder / "model") | digests(ran.folder / "claims")
    assert (ran.folder / "evidence.sqlite").read_bytes() == evidence
    assert ran.ran == ["1"]


def test_devices_and_files_apart_are_fine(tmp_path: Path) -> None:
    null = Path(os.devnull)
    keep_apart({"--json": null, "--report": null, "--evidence": tmp_path / "a"})
    keep_apart({"--json": tmp_path / "a", "--report": None}, {"in": tmp_path / "b", "no": None})


def test_a_sweep_keeps_no_evidence_in_a_model_s_folder(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    text = f"models = ['{tmp_path}/model']\nevidence = 'model/x.sqlite'"
    (tmp_path / "sweep.toml").write_text(text)
    with pytest.raises(BadInput, match="nothing is written"):
        sweep.read(tmp_path / "sweep.toml")


def test_what_standard_output_already_holds_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "all.txt"
    with path.open("w") as file:
        monkeypatch.setattr(sys, "stdout", file)
        print("the table")
        outputs.replace_file(path, '{"schema": 1}\n')
        print("the end")
    assert path.read_text() == 'the table\n{"schema": 1}\nthe end\n'
