"""The command `flips`, with runs that are made up: listed, repeated, gone on with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.harness.cli import flips
from assay.harness.results.errors import BadInput
from assay.harness.results.evidence import Evidence
from assay.harness.results.records import Selection
from assay.harness.runners.environments import CannotInstall, Environment
from assay.harness.runners.repeats import grouped
from assay.harness.runners.runner import Request
from assay.harness.tests.support.evidences import broken, law, run_of, write

OLD, NEW, GONE = "5.0.0", "5.1.0", "5.2.0"
REAL, LUCK = "tiny:real", "tiny:luck"


class World:
    """Evidence with two flips, one of which is luck, and a pytest that knows the truth."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.first, self.second = folder, folder / "a.sqlite", folder / "b.sqlite"
        self.commands: list[list[str]] = []
        self.code = 0
        results = {OLD: [law(REAL), law(LUCK)], NEW: [broken(REAL), broken(LUCK)]}
        for version, each in results.items():
            write(self.first, run_of(version, REAL, LUCK, profile="glance"), each)

    def having(self, folder: Path, package: str, version: str) -> Environment:
        if version == GONE:
            raise CannotInstall("No matching distribution found")
        return Environment(Path(version), {package: version, "torch": "2.13.0"})

    def start(self, request: Request) -> int:
        """Settle the law on the models of the request: refuted in the newer version on REAL."""
        self.commands.append(command := request.command)
        if self.code:
            return self.code
        version, options = command[0], dict(a[2:].split("=", 1) for a in command if "=" in a)
        models = [a[8:] for a in command if a.startswith("--model=")]
        run = run_of(version, *models, profile=options["profile"], seed=int(options["seed"]))
        numbers = [a[8:] for a in command if a.startswith("--claim=")]
        run.selection = Selection(numbers=numbers, keyword="", marker="")
        bad = [m for m in models if m == REAL and version == NEW]
        write(Path(options["evidence"]), run, [broken(m) if m in bad else law(m) for m in models])
        return 0

    def flips(self, *arguments: str) -> int:
        options = [str(self.first), *arguments, "--environments", str(self.folder)]
        return flips.main(options, self.having, self.start)

    def repeat(self, *arguments: str) -> int:
        return self.flips("--repeat", str(self.second), *arguments)


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_flips_are_listed_and_nothing_is_run(world, capsys):
    assert world.flips() == 0
    said = capsys.readouterr().out
    assert "2 flips: 2 not repeated" in said
    assert all(word in said for word in (OLD, NEW, "refuted"))
    assert not world.commands


def test_a_flip_is_repeated_in_both_versions_with_another_seed(world, capsys):
    assert world.repeat() == 0
    assert [command[0] for command in world.commands] == [OLD, NEW]
    for command in world.commands:
        assert f"--claim=C2:{law(REAL).name}" in command
        assert {f"--model={REAL}", f"--model={LUCK}"} <= set(command)
        assert {"--seed=1", "--profile=quick", "--dtype=float32", "--device=cpu"} <= set(command)
    said = capsys.readouterr().out
    assert "✓ 1/2 transformers 5.0.0, 1 claim on tiny:luck, tiny:real" in said
    assert "2 flips: 1 seen again, 1 not seen again" in said


def test_a_flip_is_repeated_with_what_its_runs_say_that_models_are_meant_to_do(world):
    for version, each in ((OLD, law(REAL)), (NEW, broken(REAL))):
        run = run_of(version, REAL, profile="glance", attends="causal")
        write(world.first, run, [each])
    world.repeat()
    said = [[a for a in command if a.startswith("--attends")] for command in world.commands]
    assert ["--attends=causal"] in said


def test_what_was_repeated_is_not_repeated_again_but_otherwise(world):
    world.repeat()
    world.repeat()
    assert len(world.commands) == 2
    world.repeat("--seed", "2")
    again = world.commands[2:]
    assert [command[0] for command in again] == [OLD, NEW]
    assert all(f"--model={LUCK}" in c and f"--model={REAL}" not in c for c in again)


def test_json_says_of_every_flip_whether_it_was_seen_again(world, capsys):
    world.repeat("--json")
    said = capsys.readouterr()
    by_subject = {flip["subject"]: flip for flip in json.loads(said.out)}
    assert {name: flip["seen"] for name, flip in by_subject.items()} == {
        REAL: "seen again",
        LUCK: "not seen again",
    }
    assert (by_subject[REAL]["before"], by_subject[REAL]["after"]) == (OLD, NEW)
    assert (by_subject[REAL]["claim"], by_subject[REAL]["verdict"]) == ("C2", "refuted")
    assert "1/2" in said.err


def test_what_cannot_be_installed_or_breaks_is_one_line_and_the_rest_goes_on(world, capsys):
    for model in (REAL, LUCK):  # one more flip, to a version that cannot be had
        write(world.first, run_of(GONE, model, profile="glance"), [law(model)])
    assert world.repeat() == 1
    assert [command[0] for command in world.commands] == [OLD, NEW]
    lines = capsys.readouterr().out.splitlines()
    assert sum("No matching distribution found" in line for line in lines) == 1
    world.code = 4
    assert world.repeat("--seed", "3") == 1
    assert "its run did not finish" in capsys.readouterr().out


def test_evidence_without_flips_says_so(world, tmp_path, capsys):
    world.first = write(tmp_path / "calm.sqlite", run_of(OLD, REAL), [law(REAL)])
    assert world.repeat() == 0
    assert capsys.readouterr().out.strip() == "0 flips"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--profile", "swift"], "'swift': is unknown"),
        (["--seed", "x"], "'x' is not a whole number"),
        (["--repeat", "."], "is a folder"),
        (["missing.sqlite"], "no such file"),
    ],
)
def test_what_cannot_be_used_is_refused(world, arguments, why):
    with pytest.raises(BadInput, match=why):
        world.flips(*arguments)
    assert not world.commands


def test_repeats_that_cannot_be_written_are_known_before_anything_is_run(world):
    world.second.write_text("no database")
    with pytest.raises(BadInput, match="not an SQLite file"):
        world.repeat()
    assert not world.commands
    with Evidence.read(world.first) as evidence:
        assert len(evidence.runs()) == 2


def test_models_are_put_together_where_little_is_run_for_nothing():
    many = {"a", "b", "c", "d", "e"}
    wanted = {"one": many, "two": many, "three": {"a", "b", "c"}, "four": {"z"}}
    assert grouped(wanted, spare=2) == [
        (["one", "three", "two"], sorted(many)),
        (["four"], ["z"]),
    ]
    assert len(grouped(wanted, spare=0)) == 3
    for groups in (grouped(wanted, spare=0), grouped(wanted, spare=100)):
        for subject, claims in wanted.items():
            assert any(subject in s and claims <= set(c) for s, c in groups)
