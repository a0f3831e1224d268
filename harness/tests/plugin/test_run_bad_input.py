"""Bad input: one clear line and exit code 4, and nothing half-written."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import torch

from assay.harness.results.evidence import Evidence
from assay.harness.tests.support import folders
from assay.harness.tests.support.sessions import Project, law

IMPATIENT = """
from assay.harness.results.evidence import Evidence
Evidence.open.__func__.__defaults__ = (None, 0.1)
"""
"""Added to a conftest: does not wait for whoever has locked the evidence."""

OPTIONS = {
    "--device=cuda:99": "cuda:99",
    "--device=abacus": "'abacus': is not a device",
    "--device=": "--device '': is empty",
    "--dtype=float7": "'float7': unsupported dtype",
    "--model=own.py:text": "own.py:text: is str; give a model, or a function from ids to logits",
    "--model=own.py:three": "returns 3 values",
    "--attends=neither": "--attends 'neither': choose from causal, both",
    "--layers=first": "--layers 'first': choose from auto, all",
    "--attention=hub/kernel": "'hub/kernel' is not an attention implementation",
    "--attention=unheard_of": "cannot use the attention 'unheard_of'",
    "--revision=v2": "tiny:gpt2: has no revision 'v2'",
    "--profile=swift": "--profile 'swift': is unknown; choose from glance, quick, standard,",
    "--seed=-1": "--seed: the seed '-1' is not a whole number from 0 on",
    "--emulate=rounding:on": "--emulate=rounding: the seed 'on' is not a whole number from 0 on",
    "--emulate=": "--emulate '': is empty",
    "--emulate=rounding": "--emulate=rounding: the seed ''",
    f"--seed={'9' * 5000}": f"--seed: the seed {'9' * 40}… is too large",
    f"--model=tiny:llama:{'9' * 40}": "is too large; the largest is 2**63 - 1",
    f"--model={'m' * 5000}": "no such folder",
    "--model=~nobody-of-this-name/x": "no such",
    f"--json={'m' * 5000}": "cannot be written (File name too long)",
    f"--device-map={'m' * 5000}": "is not a file",
    "--emulate=allocation:even": "choose from rounding:SEED, allocation:odd",
    "--json=.": "is a folder",
    "--report=pytest.ini/page.html": "cannot be written (Not a directory)",
    "--report=~nobody-of-this-name/page.html": "no such home folder",
    "--model=": "--model '': is empty",
    "--model=tiny:gpt22": "knows no model type 'gpt22'; near: gpt2",
    "--model=tiny:gpt2:x": "the seed 'x' is not a whole number",
    "--model=reference:vast": "reference: no size 'vast'",
    "--model=tiny:gpt2+no-fault": "'no-fault': is not a fault",
    "--model=tiny:gpt2+future-seen": "'future-seen': is not a fault; near: future-seen-",
    "--model=tiny:gpt2+window-crop-one-too-far": "does not apply; window: no layer",
    "--model=/no/such/folder": "'/no/such/folder': no such folder",
    "--model=tiny:gpt2 --model=tiny:nope": "knows no model type 'nope'",
    "--replay=AA== --resume": "--replay: cannot be combined with --resume",
    "--report=x.txt": "give one page (.html) and one file of Markdown",
    "-o oracle=disk": "oracle 'disk': choose from auto, copy, stream, cpu",
    "--expectations=pytest.ini": "is not a folder",
    "--expectations=record:pytest.ini": "is not a folder",
    "--expectations=none": "no such folder; --expectations=record:FOLDER makes it",
    "--expectations=pipes": "gpt2.toml: is not a regular file",
    "--model=empty": "empty: holds no model, there is no config.json in it",
    "--model=pytest.ini": "pytest.ini: is a file; give the folder that holds the model",
    "--evidence=claims": "not a file",
    "--evidence=pytest.ini": "not an SQLite file",
    "--evidence=foreign.sqlite": "SQLite, but of another application",
    "--evidence=newer.sqlite": "has version 99",
    "--evidence=locked.sqlite": "locked by another process",
    "--evidence=pytest.ini/evidence.sqlite": "its folder cannot be used",
}


def test_what_cannot_be_used_is_refused_before_anything_runs(project: Project) -> None:
    project.claims(law(1))
    project.write("own.py", "def text():\n    return 'a'\n\ndef three():\n    return 1, 2, 3\n")
    for name in ("empty", "pipes"):
        (project.folder / name).mkdir()
    os.mkfifo(project.folder / "pipes" / "gpt2.toml")
    (project.folder / "conftest.py").open("a").write(IMPATIENT)
    with closing(sqlite3.connect(project.folder / "foreign.sqlite")) as foreign:
        foreign.execute("CREATE TABLE theirs (a)")
    for name in ("newer", "locked"):
        Evidence.open(project.folder / f"{name}.sqlite").close()
    with closing(sqlite3.connect(project.folder / "newer.sqlite")) as newer:
        newer.execute("PRAGMA user_version = 99")
    before = folders.listing(project.folder)
    with closing(sqlite3.connect(project.folder / "locked.sqlite")) as locked:
        locked.execute("BEGIN EXCLUSIVE")
        runs = project.runs(*([*option.split(" "), "--junitxml=junit.xml"] for option in OPTIONS))
    wrong = {
        option: run.output
        for (option, words), run in zip(OPTIONS.items(), runs, strict=True)
        if not run.refused(words)
    }
    assert not wrong
    assert project.ran == []
    after = folders.listing(project.folder)
    assert {name: after[name] for name in before} == before
    written = {name for name in after if not name.startswith(("claims/__", "__", ".", "output"))}
    # Where only the claims' subject turns out to be bad the evidence is made, whole and empty.
    assert written - set(before) <= {"evidence.sqlite", "junit.xml"}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A model's folder with a weight that is no number, which only loading finds."""
    folder = tmp_path / "saved"
    folders.tiny("gpt2").save_pretrained(folder)
    folders.edit_weights(folder, lambda tensors: first_of(tensors).fill_(torch.nan))
    return folder


def first_of(tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    """The first number of the first tensor by name, as a view."""
    return tensors[min(tensors)].view(-1)[:1]


def test_what_is_found_late_costs_nothing_that_was_recorded(project: Project, saved: Path) -> None:
    project.claims(law(1), law(2))
    options = ["--model=tiny:gpt2", f"--model={saved}", "--json=out.json", "--report=page.html"]
    run = project.run(*options)
    assert run.exit == 1
    assert f"{saved}: " in run.output
    assert "NaN or infinite" in run.output
    claims = project.json()["claims"]
    by_subject = sorted((str(saved) in each["subject"], each["verdict"]) for each in claims)
    assert by_subject == 2 * [(False, "upheld")] + 2 * [(True, "inconclusive")]
    folders.edit_weights(saved, lambda tensors: first_of(tensors).fill_(0.5))
    assert project.run(*options).exit == 0
    assert {each["verdict"] for each in project.json()["claims"]} == {"upheld"}


def test_a_disk_that_fills_up_in_mid_run_keeps_what_is_recorded(project: Project) -> None:
    full = """if not os.environ.get("ROOM"):
        import resource
        most = (Path(__file__).parents[1] / "evidence.sqlite").stat().st_size + 2**14
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        check.details["much"] = "x" * 2**17"""
    project.claims(law(1), law(2, body=full), law(3))
    run = project.run()
    assert run.refused("evidence.sqlite", "disk")
    assert project.ran == ["1", "2"]
    project.forget_ran()
    run = project.run("--resume", "--json=out.json", ROOM="1")
    assert run.exit == 0
    assert project.ran == ["2", "3"]
    assert len(project.json()["claims"]) == 3


def test_a_file_that_cannot_be_written_at_the_end_can_be_had_later(project: Project) -> None:
    project.claims(law(1, body='Path("page.html").mkdir()'), law(2))
    run = project.run("--json=out.json", "--report=page.html")
    assert run.refused("page.html", "cannot be written")
    assert "2 upheld" in run.output
    assert len(project.json()["claims"]) == 2
    project.forget_ran()
    assert project.run("--resume", "--report=other.html").exit == 0
    assert project.ran == []
    assert "law 2" in (project.folder / "other.html").read_text()


def test_a_claim_that_rejects_a_model_has_its_own_row_and_ends_nothing(project: Project) -> None:
    project.claims(law(1), law(2, body='raise BadInput("this model: will not do")'), law(3))
    run = project.run("--json=out.json", "--junitxml=junit.xml")
    assert run.exit == 1
    assert set(project.ran) == {"1", "2", "3"}
    rows = {row["id"]: row for row in project.json()["claims"]}
    assert rows["X2"]["verdict"] == "inconclusive"
    assert rows["X2"]["reason"] == "this model: will not do"
    assert "this model: will not do" in (project.folder / "junit.xml").read_text()


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ('[[claim]]\nid = "Z99"\nverdict = "refuted"\nreason = "no"\n', "no claim Z99"),
        ('[[capability]]\nname = "cash"\nreason = "no"\n', "no capability 'cash'"),
    ],
)
def test_expectations_of_what_there_is_not_are_refused(
    project: Project, entry: str, said: str
) -> None:
    project.claims(law(1))
    project.write("expected/gpt2.toml", f'model = "tiny:gpt2"\n{entry}')
    run = project.run("--expectations=expected", "--claim=X1")
    assert run.refused("gpt2.toml", said)
    assert not project.ran


def test_a_file_of_pytest_s_that_cannot_be_written_is_one_line(project: Project) -> None:
    project.claims(law(1))
    run = project.run("--junitxml=/dev/full", "--json=out.json")
    assert run.refused("a file of pytest's: cannot be written (No space left on device)")
    assert project.verdicts() == {"law 1": "upheld"}
    assert "1 upheld" in run.output
