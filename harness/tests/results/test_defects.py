"""Scripts that show defects: what is read, refused, run, and written as their index."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.harness.cli.main import main
from assay.harness.results import defects
from assay.harness.results.errors import BadInput
from assay.harness.tests.support.defects import DOCSTRING


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "defects"
    made.mkdir()
    return made


def put(folder: Path, name: str = "lost", docstring: str = DOCSTRING, code: str = "") -> Path:
    path = folder / f"{name}.py"
    path.write_text(docstring + code)
    return path


def test_a_docstring_says_what_there_is_to_know(folder):
    put(folder)
    (defect,) = defects.read(folder)
    assert defect.title == "A static cache loses its first token."
    assert defect.claims == [("C2", "static"), ("C5", "")]
    assert defect.types == ["mamba", "gemma*"]
    assert defect.versions == ["4.57.1", "5.0.0rc1"]
    assert defect.fields["Cause"] == "what `cache_position` says is read too early."


@pytest.mark.parametrize("key", defects.KEYS)
def test_a_docstring_that_lacks_a_key_is_refused(folder, key):
    lines = [line for line in DOCSTRING.splitlines(True) if not line.startswith(key)]
    put(folder, docstring="".join(lines))
    with pytest.raises(BadInput, match=key):
        defects.read(folder)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("    is read", "is read"), "belongs to no key"),
        (("Claims: C2 [static], C5", "Claims: the cache"), "names none"),
        (("transformers 4.57.1, 5.0.0rc1", "main"), "names none"),
        (("Types: mamba, gemma*", "Types: ,"), "names none"),
        (('"""', "("), "cannot be read as Python"),
        (("Expected:", "Fixed in: main\nExpected:"), "'Fixed in' names none"),
    ],
)
def test_a_docstring_that_says_it_wrongly_is_refused(folder, change, why):
    put(folder, docstring=DOCSTRING.replace(*change))
    with pytest.raises(BadInput, match=why):
        defects.read(folder)


def test_a_script_without_a_docstring_is_refused(folder):
    put(folder, docstring="x = 1\n")
    with pytest.raises(BadInput, match="no docstring"):
        defects.read(folder)


@pytest.mark.parametrize(
    ("code", "shows", "text"),
    [
        ("import sys\nprint('off by 0.3')\nsys.exit(1)", True, "off by 0.3"),
        ("print('all the same')", False, "all the same"),
        ("import nowhere", None, "ModuleNotFoundError"),
        ("assert False", None, "AssertionError"),
        ("import sys\nsys.exit(3)", None, "exit code 3"),
        ("import time\ntime.sleep(60)", None, "more than"),
    ],
)
def test_a_script_shows_its_defect_by_exit_code_1_and_by_no_exception(folder, code, shows, text):
    put(folder, code=code)
    (defect,) = defects.read(folder)
    came = defects.run(defect, patience=2 if "sleep" in code else 60)
    assert came.shows is shows
    assert text in came.output


def test_the_command_writes_the_index_and_runs_the_scripts(folder, capsys):
    put(folder, code="import sys\nsys.exit(1)")
    assert main(["defects", str(folder)]) == 0
    index = (folder / "README.md").read_text()
    assert "| [lost](lost.py) | A static cache loses its first token. | C2 [static], C5 |" in index
    assert main(["defects", str(folder), "--run"]) == 0
    put(folder, "fixed", code="pass")
    capsys.readouterr()
    assert main(["defects", str(folder), "--run"]) == 1
    output = capsys.readouterr().out
    assert "lost: shows" in output
    assert "fixed: does not show" in output
    assert "1 of 2 defects shown" in output
    assert "0 of 0 fixes worked" in output


FIX = """
import sys
def fix():
    global broken
    broken = {broken}
if "--fixed" in sys.argv:
    fix()
{more}sys.exit(broken)
"""


@pytest.mark.parametrize("works", [True, False])
def test_a_defect_s_fix_is_run_as_well_and_fails_the_command_unless_it_works(
    folder, capsys, works
):
    docstring = DOCSTRING.replace("none, because it is made up", "x.py, 3: read later")
    code = FIX.format(broken=not works, more="else:\n    broken = True\n")
    put(folder, docstring=docstring, code=code)
    (defect,) = defects.read(folder)
    assert defect.fixed
    assert main(["defects", str(folder), "--run"]) == (0 if works else 1)
    output = capsys.readouterr().out
    assert ("lost: shows; fixed" if works else "lost: shows; still shows") in output
    assert f"{int(works)} of 1 fixes worked" in output
    assert main(["defects", str(folder)]) == 0
    assert "1 of 1 have a fix" in (folder / "README.md").read_text()


@pytest.mark.parametrize("release", ["5.24.0", "5.9"])
def test_a_defect_that_the_installed_version_has_fixed_is_to_show_no_longer(
    folder, capsys, monkeypatch, release
):
    docstring = DOCSTRING.replace("Expected:", f"Fixed in: transformers {release}\nExpected:")
    docstring = docstring.replace("none, because it is made up", "x.py, 3: read later")
    code = FIX.format(broken=False, more="else:\n    broken = {broken}\n")
    put(folder, docstring=docstring, code=code.format(broken=False))
    (defect,) = defects.read(folder)
    assert defect.fixed_in == release
    assert "4.57.1, 5.0.0rc1; fixed in" in defects.index([defect])
    for installed, exit_code, words in (
        ("5.24.0", 0, f"lost: fixed in {release}"),
        ("5.25.0.dev0", 0, f"lost: fixed in {release}"),
        ("5.8.1", 1, "lost: does not show; fixed"),
    ):
        monkeypatch.setattr("assay.harness.cli.defects.version", lambda _, at=installed: at)
        assert main(["defects", str(folder), "--run"]) == exit_code
        output = capsys.readouterr().out
        assert words in output
        assert ("1 of 1 fixed defect gone" in output) is (exit_code == 0)
    put(folder, docstring=docstring, code=code.format(broken=True))
    assert main(["defects", str(folder), "--run"]) == 0
    monkeypatch.setattr("assay.harness.cli.defects.version", lambda _: "5.24.0")
    capsys.readouterr()
    assert main(["defects", str(folder), "--run"]) == 1
    assert f"lost: shows, though fixed in {release}" in capsys.readouterr().out


def test_a_docstring_and_its_script_agree_whether_there_is_a_fix(folder):
    put(folder, code=FIX.format(broken=False, more=""))
    with pytest.raises(BadInput, match="disagree"):
        defects.read(folder)
    put(folder, docstring=DOCSTRING.replace("none, because it is made up", "x.py, 3: later"))
    with pytest.raises(BadInput, match="disagree"):
        defects.read(folder)


def test_what_cannot_be_read_is_one_line_and_exit_code_4(folder, capsys):
    put(folder, docstring='"""Nothing."""')
    for arguments in ([str(folder)], [str(folder / "nowhere")], [str(folder), "--run"]):
        assert main(["defects", *arguments]) == 4
        assert capsys.readouterr().err.count("\n") == 1
    assert not (folder / "README.md").exists()


def test_a_readme_that_is_no_index_is_left_alone(folder, capsys):
    put(folder)
    readme = folder / "README.md"
    readme.write_text("# Somebody's own\n")
    assert main(["defects", str(folder)]) == 4
    assert capsys.readouterr().err.count("\n") == 1
    assert readme.read_text() == "# Somebody's own\n"
