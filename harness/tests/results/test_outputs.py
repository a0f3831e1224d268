"""Two outputs on one file, or an output on an input: refused before anything is run."""

from __future__ import annotations

import hashlib
import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from assay.harness.cli import compare, kills
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
    "evidence and json": ["--evidence=evidence.sqlite", "--json=evidence.sqlite"],
    "evidence and report": ["--evidence=evidence.sqlite", "--report=./x/../evidence.sqlite"],
    "by a link": ["--evidence=evidence.sqlite", "--json=link.sqlite"],
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
    "--summary": ["--summary=by_link/new.md"],
    "--junitxml": ["--junitxml=model/new.xml"],
    "--expectations": ["--record-expectations", "--expectations=model/expected"],
    "--basetemp": ["--basetemp=model"],
    "--basetemp ": ["--basetemp=kept", "--evidence=kept/evidence.sqlite"],
    "--log-file": ["--log-file=model/config.json"],
    "--log-file ": ["-olog_file=model/new.log"],
    "cache_dir": ["-pcacheprovider", "-ocache_dir=model/cache"],
    "--debug": ["--debug=model/config.json"],
    "--debug ": ["--debug=evidence.sqlite"],
    "--debug  ": ["--debug=model/new.log"],
}
if find_spec("pytest_benchmark") is not None:
    IN_A_MODEL["--benchmark-storage"] = [
        "--benchmark-autosave",
        "--benchmark-storage=file://model/b",
    ]


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
    keep_apart({"--json": null, "--report": null, "--evidence": tmp_path / "a"}, {"in": tmp_path})
    keep_apart({"--json": tmp_path / "a", "--report": None}, {"in": tmp_path / "b", "no": None})


@pytest.mark.parametrize("option", ["--json", "--report", "--html", "--out"])
def test_only_a_file_of_the_same_format_is_replaced(tmp_path: Path, option: str) -> None:
    own = "{}" if option == "--json" else "<!doctype html>"
    for text in ("SQLite format 3\0", "my notes", "[tool]", "{}", "<html>"):
        (tmp_path / "out").write_text(text)
        if text[0] == own[0]:
            keep_apart({option: tmp_path / "out"})
        else:
            with pytest.raises(BadInput, match="exists and holds no"):
                keep_apart({option: tmp_path / "out"})
    for text in ("", " \n" + own):
        (tmp_path / "out").write_text(text)
        keep_apart({option: tmp_path / "out"})


def test_commands_keep_their_inputs(ran: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ran.folder)
    before = digests(ran.folder)
    evidence = "evidence.sqlite"
    commands = [
        (compare.main, [evidence, evidence, "--html", evidence]),
        (compare.main, [f"{evidence}@latest", "before.json", "--html", "before.json"]),
        (kills.main, ["--json", "both", "--report", "both"]),
    ]
    for command, arguments in commands:
        with pytest.raises(BadInput, match=r"is read as|give each its own"):
            command(arguments, *([] if command is compare.main else [None]))
    assert digests(ran.folder) == before


def test_drafts_of_writers_that_were_killed_are_removed(tmp_path: Path) -> None:
    target = tmp_path / "results.json"
    draft = outputs._draft_of(target)
    mine = draft.name.partition(f"{os.getpid()}-")[0]
    kept = [tmp_path / f"{mine}{os.getpid()}-ab.tmp", tmp_path / ".results.json.other-1-ab.tmp"]
    dead = tmp_path / f"{mine}{2**22 + 1}-ab.tmp"
    for path in [*kept, dead]:
        path.touch()
    outputs.replace_file(target, "new")
    assert target.read_text() == "new"
    assert all(path.exists() for path in kept)
    assert not dead.exists()
    assert not draft.exists()


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


def test_another_name_of_a_file_of_a_model_is_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "summary.md").hardlink_to(tmp_path / "model" / "config.json")
    with pytest.raises(BadInput, match="lies in the folder of --model"):
        outputs.keep_out({"--summary": tmp_path / "summary.md"}, {"--model": tmp_path / "model"})
