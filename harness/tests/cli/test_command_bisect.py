"""`versions --bisect`, with versions that are made up: what it prints, writes and refuses."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from packaging.version import Version

from assay.harness.cli import bisect
from assay.harness.cli.main import check
from assay.harness.results.errors import BadInput
from assay.harness.results.verdicts import Kind, Result, Verdict
from assay.harness.runners.environments import CannotInstall, Environment
from assay.harness.runners.runner import Broke, Request

RELEASED = [Version(f"5.{minor}.{patch}") for minor in range(8) for patch in (0, 1)]
CLAIM = ["--bisect", "--claim", "C2", "--model", "tiny:mamba2"]
ENDS = ["--good", "5.7.1", "--bad", "5.0"]
FIXED = Version("5.3.1")


def known(model: str, selection: object) -> None:
    """Every model and claim is."""


@pytest.fixture
def world(tmp_path, monkeypatch):
    """Versions of which C2 is fixed in 5.3.1; runs keep their commands."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    commands: list[tuple[str, list[str]]] = []

    def made(folder: Path, requirements: list[str]) -> Environment:
        folder.mkdir(parents=True, exist_ok=True)
        (requirement,) = requirements
        version = requirement.removeprefix("transformers==")
        if version == "5.4.0":
            raise CannotInstall("No matching distribution found")
        return Environment(folder / "python", {"transformers": version})

    def results(request: Request, examples: dict[str, str]) -> list[Result]:
        version = request.python.parent.name
        commands.append((version, request.command))
        if version == "5.5.0":
            raise Broke("killed by SIGKILL")
        # The last version without the fix is upheld when it is repeated with this seed.
        flips = version == "5.3.0" and request.settings.seed == 9
        verdict = Verdict.UPHELD if Version(version) >= FIXED or flips else Verdict.REFUTED
        return [Result("C2", "a law [default]", Kind.LAW, "tiny:mamba2", verdict, reason="why")]

    def run(*arguments: str) -> int:
        return bisect.main(list(arguments), known, made, lambda package: list(RELEASED), results)

    run.commands = commands
    return run


def test_the_answer_is_a_sentence_and_no_rubbish_is_left(world, capsys, tmp_path):
    assert world(*CLAIM, *ENDS) == 0
    said = capsys.readouterr().out
    answer = "C2 on tiny:mamba2 is upheld since transformers 5.3.1; the last before it is 5.3.0."
    assert answer in said
    assert "It is about: a law [default]" in said
    assert "5.0.0    ✗ refuted  why" in said
    assert "5.3.1    ✓ upheld again" in said
    assert not list(tmp_path.iterdir())


def test_a_version_that_cannot_be_tested_says_why(world, capsys):
    world(*CLAIM, "--good", "5.7.1", "--bad", "5.3.0")
    assert "5.5.0    – cannot be tested  killed by SIGKILL" in capsys.readouterr().out


def test_a_deciding_version_that_flips_is_reported_and_fails(world, capsys):
    assert world(*CLAIM, *ENDS, "--seed=8") == 1
    assert "Doubtful: 5.3.0 was refuted and is upheld when repeated." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([*CLAIM, "--good", "5.7.1", "--bad", "5.2.5"], "no such release .* 5.2.0, 5.2.1"),
        ([*CLAIM, "--good", "new", "--bad", "5.0"], "--good 'new': is not a version"),
        ([*CLAIM, "--good", "5.7", "--bad", "5.7.0"], "are both 5.7.0"),
        ([*CLAIM, "--good", "5.7.1", "--bad", "5.6.1"], "nothing is upheld at 5.7.1 and refuted"),
        ([*CLAIM, "--good", "5.4.0", "--bad", "5.0"], "5.4.0, given as good, cannot be tested: "),
        ([*CLAIM, *ENDS, "--limit", "0"], "not a number above 0"),
        ([*CLAIM, "--good", "5.7.1"], "required: --bad"),
    ],
)
def test_what_cannot_be_used_is_refused_and_no_rubbish_is_left(world, tmp_path, arguments, why):
    with pytest.raises(BadInput, match=why):
        world(*arguments)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("claim", "model", "why"),
    [
        ("Z9", "tiny:gpt2", "--claim Z9: there is no such claim here; there are A1"),
        ("C2", "tiny:nosuch", "nosuch"),
    ],
)
def test_a_claim_or_model_that_is_not_there_is_refused_before_anything_is_installed(
    claim: str, model: str, why: str
) -> None:
    def released(package: str) -> list[Version]:
        raise AssertionError("asked for versions")

    arguments = ["--bisect", "--claim", claim, "--model", model, *ENDS]
    with pytest.raises(BadInput, match=why):
        bisect.main(arguments, check, released=released)
