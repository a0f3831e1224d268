"""Nothing that lies in a model's folder is taken for pytest's settings, a plug-in or a module."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from assay.harness.tests.support.clones import run
from assay.harness.tests.support.folders import tiny
from assay.harness.tests.support.sessions import PACKAGE, Project, law

INI = "addopts = -p evilplug\npythonpath = .\n"
TOML = 'addopts = ["-p", "evilplug"]\npythonpath = ["."]\n'
SETTINGS = {
    "pytest.toml": f"[pytest]\n{TOML}",
    ".pytest.toml": f"[pytest]\n{TOML}",
    "pytest.ini": f"[pytest]\n{INI}",
    ".pytest.ini": f"[pytest]\n{INI}",
    "pyproject.toml": f"[tool.pytest.ini_options]\n{TOML}",
    "tox.ini": f"[pytest]\n{INI}",
    "setup.cfg": f"[tool:pytest]\n{INI}",
}
"""All files in which pytest looks for its settings; older ones know fewer."""

MODULES = (
    *("__init__", "conftest", "evilplug", "installed", "setup", "test_evil"),
    "tests/__init__",
    "tests/conftest",
)
IN_PLACE_OF_OTHERS = (
    *("sitecustomize", "usercustomize"),  # Python itself imports these when it starts
    *("struct", "traceback", "weakref", "xdist"),  # pytest and its workers import these
)


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    """A file with the name of each of the folder's modules that was run, one a line."""
    path = tmp_path / "ran"
    path.touch()
    return path


@pytest.fixture
def hostile(tmp_path: Path, ran: Path) -> Path:
    """A model's folder with everything that pytest or Python might run."""
    folder = tmp_path / "models" / "hostile"
    for module in (*MODULES, *IN_PLACE_OF_OTHERS):
        path = folder / f"{module}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"open({str(ran)!r}, 'a').write({module + chr(10)!r})\n")
    for name, text in SETTINGS.items():
        (folder / name).write_text(text)
    (folder / "evil.pth").write_text("import evilplug\n")
    points = folder / "evil-1.0.dist-info"
    points.mkdir()
    (points / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    (points / "entry_points.txt").write_text("[pytest11]\nevil = installed\n")
    return folder


def leave_others(folder: Path) -> None:
    """Take away the modules that stand in place of others': pytest itself would break by them."""
    for name in IN_PLACE_OF_OTHERS:
        (folder / f"{name}.py").unlink()


WAYS = {
    "from the clone": (".", ["--model={folder}"], {}),
    "by a relative path": (".", ["--model=../models/hostile"], {}),
    "by a link in the clone": (".", ["--model=link"], {}),
    "beside a path of a test": (".", ["--model={folder}", "claims/test_it.py::test_one"], {}),
    "with a plug-in named": (
        ".",
        ["-p", "assay.harness.plugin.path_guard", "--model={folder}"],
        {},
    ),
    "in workers": (".", ["-n", "2", "--model={folder}"], {}),
    "several": (".", ["--model={folder}", "--model={folder}/tests", "--model={folder}/.."], {}),
    "by the environment": (".", [], {"PYTEST_ADDOPTS": "--model={folder}"}),
}
"""Where a run is begun, its arguments, and its variables."""


@pytest.mark.parametrize("way", WAYS)
def test_a_run_reads_and_runs_nothing_of_it(
    clone: Path, hostile: Path, ran: Path, way: str
) -> None:
    (clone / "link").symlink_to(hostile)
    where, arguments, variables = WAYS[way]
    known = {"folder": hostile, "clone": clone}
    done = run(
        clone / where.format(**known),
        *(argument.format(**known) for argument in arguments),
        command=("-P", "-m", "pytest"),
        **{name: value.format(**known) for name, value in variables.items()},
    )
    assert not ran.read_text()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout
    assert f"rootdir: {clone}\n" in done.stdout
    assert "configfile: pyproject.toml" in done.stdout


@pytest.mark.parametrize(
    ("name", "by"),
    [*((name, "arguments") for name in SETTINGS), ("pytest.ini", "environment")],
)
def test_settings_that_were_read_beside_a_model_end_the_run(
    clone: Path, hostile: Path, ran: Path, name: str, by: str
) -> None:
    """Apart from its option a path is a test's to pytest, before any plug-in is asked."""
    for other in SETTINGS.keys() - {name}:
        (hostile / other).unlink()
    leave_others(hostile)
    options = ["--model", str(hostile)]
    done = (
        run(clone, *options)
        if by == "arguments"
        else run(clone, PYTEST_ADDOPTS=shlex.join(options))
    )
    if name.endswith("pytest.toml") and not ran.read_text():
        assert int(pytest.__version__.split(".")[0]) < 9, "it has read them since"
        return
    assert "evilplug" in ran.read_text().split(), "these settings harm nobody"
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    assert len(errors) == 1
    assert str(hostile / name) in errors[0]
    assert f"write --model={hostile}" in errors[0]
    assert "conftest" not in ran.read_text()


def test_settings_above_a_model_end_the_run_as_well(clone: Path, hostile: Path) -> None:
    (hostile.parent / "pytest.ini").write_text("[pytest]\n")
    for name in SETTINGS:
        (hostile / name).unlink()
    done = run(clone, "--model", hostile)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert str(hostile.parent / "pytest.ini") in done.stderr


@pytest.mark.parametrize("name", ["model", "test_model"])
def test_a_model_among_the_claims_is_refused(
    clone: Path, hostile: Path, ran: Path, name: str
) -> None:
    hostile.rename(clone / "claims" / name)
    done = run(clone, f"--model=claims/{name}")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "where pytest looks for tests" in done.stderr
    assert not ran.read_text()


def test_a_model_that_a_module_could_be_imported_from_is_refused(
    clone: Path, hostile: Path, ran: Path
) -> None:
    package = clone / "package"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('ran')")
    path = f"{PACKAGE}{os.pathsep}{hostile.parent}"
    for model, variables, said in [
        (package, {}, "could be imported as a package"),
        (hostile, {"PYTHONPATH": path}, "could be imported as a package"),
        (hostile.parent, {"PYTHONPATH": path}, "look at PYTHONPATH"),
    ]:
        done = run(clone, f"--model={model}", **variables)
        assert done.returncode == pytest.ExitCode.USAGE_ERROR
        assert said in done.stderr
    leave_others(hostile)
    # By its metadata the folder could bring plug-ins as well; pytest loads them before it asks.
    (hostile / "evil-1.0.dist-info" / "entry_points.txt").unlink()
    ran.write_text("")
    done = run(hostile, clone / "claims", "--model=.")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "not `python -m pytest`" in done.stderr
    assert not ran.read_text()


@pytest.mark.parametrize(
    ("where", "model", "workers"),
    [(".", ".", []), (".", ".", ["-n", "2"]), ("tests", "..", []), ("tests", "{folder}", [])],
)
def test_a_run_begun_in_a_model_is_refused(
    clone: Path, hostile: Path, ran: Path, where: str, model: str, workers: list[str]
) -> None:
    """Workers would import its ``struct``, and pytest-benchmark would start git there."""
    arguments = [*workers, clone / "claims", f"--model={model.format(folder=hostile)}"]
    program = ("-P", "-m", "pytest")
    done = run(hostile / where, *arguments, command=program)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "begin it in another folder" in done.stderr
    assert not ran.read_text()


def test_assay_itself_refuses_it_too(project: Project, tmp_path: Path) -> None:
    """The plug-in that looks first is there only where Assay is installed."""
    project.claims(law(1))
    tiny("gpt2").save_pretrained(project.folder / "claims" / "model")
    (project.folder / "harness" / "plugin").mkdir(parents=True)
    (project.folder / "harness" / "plugin" / "path_guard.py").touch()
    alone = ("-p", "no:assay.harness.plugin.path_guard")
    among = project.run("--model=claims/model", *alone)
    assert among.refused("where pytest looks for tests")
    tiny("gpt2").save_pretrained(tmp_path / "model")
    claims = str(project.folder / "claims")
    begun = project.run("--model=.", claims, *alone, folder=tmp_path / "model")
    assert begun.refused("begin it in another folder")
