"""Claims from outside: of an installed package, of files that ``--claims`` names, in a project."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from assay.harness.tests.support.sessions import PACKAGE, ROOT, commands_in

EXAMPLE = ROOT / "docs" / "example-claims"

LAW = """
import assay

@assay.law("{id}", "{says}", source="us", control="{control}"{more})
def {name}(subject, draw, check):
    prompt = draw(assay.prompts(subject, shortest=2), "prompt")
    expected = check.reference(lambda s: s.rows(prompt.ids[:, :1]))
    check.same(expected, subject.rows(prompt.ids).at([0]))
    check.rejects(expected, lambda: subject.rows(prompt.ids).at([1]))
"""
FAULT = """
@assay.fault("{fault}", "a fault for a test", caught_by=["{caught_by}"])
def {fault}(bed):
    bed.after(bed.subject.blocks[0], lambda forward, state: {change})
"""
ONE = ["--family=llama", "--extent=named"]
LEAK = "state + 0.1 * state.roll(-1, 1)"


def a_law(id: str = "ACME1", **fields: str) -> str:
    usual = {"says": f"law {id}", "control": "the next row", "more": "", "name": f"test_{id}"}
    return LAW.format(**usual | {"id": id} | fields)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the example is installed."""
    folder = tmp_path_factory.mktemp("example")
    shutil.copytree(EXAMPLE, folder / "source")
    how = ["--quiet", "--no-deps", "--no-build-isolation", "--target", folder / "packages"]
    command = [sys.executable, "-m", "pip", "install", *how, folder / "source"]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "packages"


def run(
    folder: Path, *commands: list[str], packages: Path | None = None, program: str = "assay"
) -> list[tuple[int, str]]:
    """The exit code and the output of each command in ``folder``, in a process of its own.

    The ``packages`` are installed there.
    """
    folder.mkdir(exist_ok=True)
    path = os.pathsep.join(str(each) for each in (PACKAGE, packages) if each is not None)
    more = {"PYTHONPATH": path, "XDG_CACHE_HOME": str(folder.parent / "cache")}
    return [
        (each.exit, each.output)
        for each in commands_in(folder, *commands, program=program, **more)
    ]


def claims(file: Path) -> dict[str, dict[str, object]]:
    """The claims of a JSON report by their names."""
    return {claim["name"]: claim for claim in json.loads(file.read_text())["claims"]}


def test_an_installed_package_of_claims_works_as_assays_own(
    packages: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "empty"
    six = [f"--claim=EX{number}" for number in range(1, 7)]
    model = "tiny:llama+example-cache-shifted"
    listed, explained, faults, sound, broken, killed, found = run(
        folder,
        ["list", "EX", "--json"],
        ["explain", "EX3"],
        ["faults"],
        ["check", "tiny:gpt2", "-m", "law", *six, "--json=sound.json"],
        ["check", model, "--claim=EX4", "--claim=EX5", "--json=broken.json"],
        ["kills", "--claims=example_claims", "--family=llama", "--json=kills.json"],
        ["kills", "--fault=example-rows-mixed", "--fault=cache-shifted", *ONE, "--json=two.json"],
        packages=packages,
    )
    rows = json.loads(listed[1])
    assert [row["id"] for row in rows if row["id"].startswith("EX")] == [
        f"EX{number}" for number in range(1, 7)
    ]
    assert "the embeddings in reverse order" in explained[1]
    assert f"{Path('example_claims', 'test_prefixes.py')}" in explained[1]
    assert "example-rows-mixed" in faults[1]
    assert sound[0] == 0, sound[1]
    assert [claim["verdict"] for claim in claims(folder / "sound.json").values()] == ["upheld"] * 6
    assert broken[0] == 1, broken[1]
    verdicts = {name: claim["verdict"] for name, claim in claims(folder / "broken.json").items()}
    assert [*verdicts.values()].count("refuted") >= 1
    assert verdicts["a row does not depend on the other rows of its batch"] == "upheld"
    assert killed[0] == 0, killed[1]
    matrix = json.loads((folder / "kills.json").read_text())
    killers = {row["fault"]: row["killers"][0][0] for row in matrix["families"][0]["rows"]}
    assert len(killers) == 4
    assert (killers["example-rows-mixed"], killers["example-cache-shifted"]) == ("EX4", "EX5")
    # Without --claims the package's faults stand beside Assay's own.
    assert found[0] == 0, found[1]
    matrix = json.loads((folder / "two.json").read_text())
    killers = {row["fault"]: row["killers"][0][0] for row in matrix["families"][0]["rows"]}
    assert killers == {"example-rows-mixed": "EX4", "cache-shifted": "C2"}

    three = "decoding with a cache equals one pass over everything [three]"
    line = claims(folder / "broken.json")[three]["counterexample"]["replay"]  # type: ignore[index]
    program, *words = shlex.split(line)
    assert program == "assay"
    assert "--claims=example_claims" in words
    replayed, sound = run(
        folder,
        [*words, "--json=replayed.json"],
        [each.partition("+")[0] if each == model else each for each in words],
        packages=packages,
    )
    assert replayed[0] == 1, replayed[1]
    (claim,) = claims(folder / "replayed.json").values()
    assert (claim["name"], claim["verdict"], claim["examples"]) == (three, "refuted", 1)
    assert sound[0] == 0, sound[1]
    assert {path.suffix for path in folder.iterdir()} == {".json"}


BAD = {
    "no_control": (a_law(control=" "), "no_control.py:4: ACME1: has no control"),
    "taken": (a_law("C1"), "C1 is declared twice: claims/cache/test_causality.py and taken.py::"),
    "twice": (
        a_law() + a_law(says="another", name="test_other"),
        "ACME1 is declared twice: twice.py::test_ACME1 and twice.py::test_other",
    ),
    "raises": (
        "import assay\nraise ValueError('one\\ntwo')",
        "raises.py:2: cannot be imported (Val",
    ),
    "syntax": ("def (", "syntax.py:1: cannot be imported (SyntaxError"),
    "unnamed": (a_law(name="law"), "unnamed.py::law: the name of ACME1's function must begin"),
    "need": (a_law(more=', needs=["casual"]'), "ACME1 needs 'casual', which is no capability"),
    "number": (a_law("AC:1", name="test_x"), "'AC:1' is not letters and digits"),
    "nothing": ("x = 1", "--claims nothing.py: has no claims"),
    "fault": (
        a_law() + FAULT.format(fault="same", caught_by="ACME1", change="state") * 2,
        "cannot be imported (ValueError: two faults are named 'same')",
    ),
}
"""Files of claims that cannot be used, with what is said of each."""


def test_claims_that_cannot_be_used_are_one_line_and_nothing_runs(tmp_path: Path) -> None:
    folder = tmp_path / "bad"
    folder.mkdir()
    for name, (text, _) in BAD.items():
        (folder / f"{name}.py").write_text(text)
    others = {"no_such": "no such file, folder or package", ".": "has no file test_*.py"}
    said = {f"{name}.py": why for name, (_, why) in BAD.items()} | others
    checks = [["check", "tiny:gpt2", f"--claims={n}.py"] for n in ("raises", "twice")]
    checks += [["check", "tiny:gpt2", "raises.py"]]
    # What lies beside a file of claims is not run.
    (folder / "conftest.py").write_text("raise SystemExit('this was read')")
    (folder / "good.py").write_text(a_law())
    good = ["check", "tiny:gpt2", "--claims=good.py", "--claim=ACME1"]
    *outcomes, sound = run(folder, *(["list", f"--claims={n}"] for n in said), *checks, good)
    assert sound[0] == 0, sound[1]
    expected = [*said.values(), BAD["raises"][1], BAD["twice"][1], "--claims=raises.py"]
    for (code, output), words in zip(outcomes, expected, strict=True):
        assert code == 4, output
        assert [words in line for line in output.splitlines() if line] == [True], output


def test_kills_says_which_faults_nothing_notices(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    changes = {"leaks": LEAK, "grows": "1.5 * state", "idles": "state"}
    faults = "".join(
        FAULT.format(fault=name, caught_by="ACME1", change=change)
        for name, change in changes.items()
    )
    (folder / "mine.py").write_text(a_law() + faults)
    foreign = FAULT.format(fault="foreign", caught_by="C1", change=LEAK)
    (folder / "foreign.py").write_text(a_law() + foreign)
    names = ("mine", "foreign")
    mine, other = run(folder, *(["kills", f"--claims={n}.py", "--family=gpt2"] for n in names))
    said = " ".join(mine[1].split())
    assert mine[0] == other[0] == 4
    assert "1 of 3 injected faults killed" in said
    assert "grows in learned positions: ACME1 did not notice" in said
    assert "error: fault idles: changes no output of a prompt" in said
    assert "fault 'foreign': caught by C1, which none of these is" in other[1]


def test_a_projects_own_tests_are_claims_with_one_setting(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    (folder / "tests").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\naddopts = ["-p", "assay"]\n'
    )
    (folder / "conftest.py").write_text(
        "import assay\n"
        + FAULT.format(fault="leaks", caught_by="ACME1", change="state.roll(-1, 1)")
    )
    (folder / "tests" / "test_mine.py").write_text(a_law() + a_law("ACME2"))
    words = ["--model=tiny:gpt2+leaks", "--json=out.json", "tests"]
    ((code, said),) = run(folder, [*words, "--evidence=evidence.sqlite"], program="pytest")
    assert code == 1, said
    found = claims(folder / "out.json")
    assert {claim["verdict"] for claim in found.values()} == {"refuted"}
    line = found["law ACME1"]["counterexample"]["replay"]  # type: ignore[index]
    assert line in said
    assert line.startswith("pytest 'tests/test_mine.py::test_ACME1[tiny:gpt2+leaks]'")
    assert "2 refuted" in said
    assert (folder / "evidence.sqlite").exists()
