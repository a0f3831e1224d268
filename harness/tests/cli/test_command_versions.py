"""The command `versions`, with runs that are made up: one file, gone on with, past what breaks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from assay.harness.cli import versions
from assay.harness.models.loading import runs
from assay.harness.models.loading.runs import Options
from assay.harness.results.errors import BadInput
from assay.harness.results.evidence import Evidence
from assay.harness.results.records import Selection, SubjectRecord
from assay.harness.results.verdicts import Kind, Result, Verdict
from assay.harness.runners.environments import CannotInstall, Environment
from assay.harness.runners.runner import Request
from assay.harness.tests.support.sessions import ROOT

MODELS = ["tiny:a", "tiny:b", "tiny:c"]
CLAIMS = ["law one", "law two"]
SIGSEGV = -11


class World:
    """Environments without packages, and a pytest that writes what it is told to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "evidence.sqlite"
        self.deadly: dict[str, str] = {}  # version → the model that takes the process down
        self.broken: dict[str, int] = {}  # version → the exit code, before any claim
        self.commands: list[tuple[str, list[str]]] = []

    def made(self, folder: Path, requirements: list[str]) -> Environment:
        """An environment, unless it is for version 9."""
        version = requirements[0].partition("==")[2].replace(".*", ".9")
        if version.startswith("9"):
            raise CannotInstall(f"No matching distribution found for {requirements[0]}")
        return Environment(Path(version), {"transformers": version, "torch": "2.13.0"})

    def start(self, request: Request) -> int:
        """Settle every claim on every model, up to one that kills the process."""
        version, models = str(request.python), list(request.models)
        self.commands.append((version, models))
        if version in self.broken:
            return self.broken[version]
        run = runs.describe_run(Options(), "quick", 0)
        run.versions |= {"transformers": version, "torch": "2.13.0"}
        run.selection = Selection(keyword="", marker="law", claims=["claims"])
        run.per_subject = len(CLAIMS)
        with Evidence.open(self.path) as evidence:
            for model in models:
                if model == self.deadly.get(version):
                    return SIGSEGV
                run.subjects[model] = SubjectRecord(digest=model)
                evidence.begin(run)
                for name in CLAIMS:
                    result = Result("C2", name, Kind.LAW, model, Verdict.UPHELD)
                    evidence.record(run.id, result, model)
            evidence.finish(run.id, 0)
        return 0

    def versions(self, *arguments: str) -> int:
        """The command's exit code."""
        options = [*arguments, "--evidence", str(self.path), "--environments", str(self.folder)]
        return versions.main(options, lambda specs: MODELS, self.made, self.start)


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_versions_run_one_after_the_other_into_one_file(world, capsys):
    assert world.versions("4.48", "5.8.1") == 0
    assert world.commands == [("4.48.9", MODELS), ("5.8.1", MODELS)]
    said = capsys.readouterr().out
    assert "✓ transformers 4.48.9: 6 upheld" in said
    with Evidence.open(world.path) as evidence:
        assert [r.versions["transformers"] for r in evidence.runs()] == ["4.48.9", "5.8.1"]


def test_what_has_been_run_to_its_end_is_not_run_again_unless_asked(world, capsys):
    world.versions("5.8.1")
    world.versions("5.8.1", "5.9.1")
    assert [version for version, _ in world.commands] == ["5.8.1", "5.9.1"]
    assert capsys.readouterr().out.count("✓ transformers 5.8.1: 6 upheld") == 2
    world.versions("5.8.1", "5.9.1", "--again")
    assert [version for version, _ in world.commands][2:] == ["5.8.1", "5.9.1"]


def test_another_budget_or_other_claims_are_other_runs(world):
    world.versions("5.8.1")
    for more in (["--profile", "standard"], ["--seed", "1"], ["--claim", "C2"], ["-m", ""]):
        before = len(world.commands)
        world.versions("5.8.1", *more)
        assert len(world.commands) == before + 1, more


def test_a_model_that_takes_the_process_down_is_left_out_by_name(world, capsys):
    world.deadly["5.8.1"] = "tiny:b"
    assert world.versions("5.8.1", "5.9.1") == 1
    assert world.commands[:2] == [("5.8.1", MODELS), ("5.8.1", ["tiny:a", "tiny:c"])]
    assert world.commands[2] == ("5.9.1", MODELS)
    assert "tiny:b: the process died (killed by SIGSEGV); left out" in capsys.readouterr().out


def test_a_version_that_fails_is_one_line_and_the_rest_goes_on(world, capsys):
    world.broken["5.8.1"] = 3
    assert world.versions("9.0", "5.8.1", "5.9.1") == 1
    said = capsys.readouterr().out.splitlines()
    why = "its run did not finish (exit code 3)"
    assert sum(line.startswith(f"✗ transformers 5.8.1: {why}") for line in said) == 1
    assert sum("No matching distribution" in line for line in said) == 1
    assert "✓ transformers 5.9.1: 6 upheld" in "\n".join(said)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["new"], "'new': is not a version"),
        (["5.8", "--profile", "swift"], "'swift': is unknown"),
        (["5.8", "--colour", "red"], "unrecognized arguments"),
    ],
)
def test_what_cannot_be_used_is_refused(world, arguments, why):
    with pytest.raises(BadInput, match=why):
        world.versions(*arguments)
    assert not world.commands


def test_tox_has_an_environment_for_every_version_and_the_pins_of_the_constraints():
    tox = (ROOT / "tox.ini").read_text()
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    factors = dict(re.findall(r"transformers(\d+): transformers==([\d.]+)\.\*", tox))
    assert list(factors.values()) == list(versions.VERSIONS)
    assert all(name == version.replace(".", "") for name, version in factors.items())
    assert f"[testenv:transformers{{{','.join(factors)}}}]" in tox
    for package in ("torch", "transformers"):
        (pinned,) = re.findall(rf"^{package} = (\S+)$", tox, re.M)
        assert pinned in pins
    tools = (ROOT / "constraints-tools.txt").read_text()
    assert not re.search(r"^(torch|transformers|tokenizers|huggingface_hub)\b", tools, re.M)
