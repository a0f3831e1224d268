"""Sweeps with runs that are made up: cells that hold, break and die, and what resumes."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.harness.cli import sweep as command
from assay.harness.models.loading import runs
from assay.harness.models.loading.runs import Options
from assay.harness.results.errors import BadInput
from assay.harness.results.evidence import Evidence
from assay.harness.results.records import Selection, SubjectRecord
from assay.harness.results.verdicts import Kind, Result, Verdict
from assay.harness.runners import environments, sweep
from assay.harness.runners.runner import Request
from assay.harness.runners.sweep import Resources

SIGKILL = -9


class Toys:
    """A folder with a sweep, and a pytest that does what a model's name says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ran: list[str] = []
        self.threads: set[str] = set()

    def start(self, request: Request) -> int:
        """Settle two laws; ``killed`` dies after the first, ``broken`` breaks the second."""
        (model,) = request.models
        self.ran.append(f"{model}:{request.settings.dtype}:{request.settings.attends}")
        self.threads.add(request.variables["OMP_NUM_THREADS"])
        options = Options(dtype=str(request.settings.dtype), attends=request.settings.attends)
        run = runs.describe_run(options, "quick", request.settings.seed)
        run.dtype = str(request.settings.dtype)
        run.selection = Selection(keyword="", marker="", claims=["claims"], dtype="auto")
        run.per_subject, run.subjects = 2, {model: SubjectRecord(digest="0")}
        broken = model == "broken"
        assert request.evidence is not None
        with Evidence.open(request.evidence) as evidence:
            evidence.begin(run)
            for name in ("one", "two"):
                verdict = Verdict.REFUTED if broken and name == "two" else Verdict.UPHELD
                evidence.record(run.id, Result("T1", name, Kind.LAW, model, verdict), "0")
                if model == "killed":
                    return SIGKILL
            evidence.finish(run.id, int(broken))
        return int(broken)

    def sweep(self, text: str, *arguments: str) -> int:
        """Write sweep.toml and run it; the exit code."""
        path = self.folder / "sweep.toml"
        path.write_text(text)
        return command.main([str(path), "--in-order", *arguments], expand, self.start)


def expand(names: list[str]) -> list[str]:
    """The names, of which one is unknown and one a pattern."""
    if "refused" in names:
        raise BadInput("refused: is no model")
    return ["good" if name == "g*" else name for name in names]


@pytest.fixture
def toys(tmp_path: Path) -> Toys:
    return Toys(tmp_path)


def test_a_cell_that_dies_or_is_refused_takes_only_itself(toys: Toys, capsys) -> None:
    text = """
    models = ["killed", "refused", "broken", "g*"]
    versions = ["here", "/no/such/python"]
    resources = {cpu = 2}
    """
    assert toys.sweep(text) == 1
    printed = capsys.readouterr().out
    assert "killed · auto · cpu: failed, killed: the process died (killed by SIGKILL)" in printed
    assert "refused · auto · cpu: failed, refused: is no model" in printed
    assert "broken · auto · cpu: broke, not as expected, 1 upheld, 1 refuted" in printed
    assert "g* · auto · cpu: held, 2 upheld" in printed
    assert "g* · auto · cpu · /no/such/python: failed, /no/such/python: no Python" in printed
    assert "8 cells: 1 held, 1 broke, 6 failed" in printed
    assert toys.threads == {"2"}
    # Of the one that was killed, what it had recorded is kept.
    with Evidence.read(toys.folder / "sweep.sqlite") as evidence:
        kept = [(r.subject, r.name) for run in evidence.runs() for r in evidence.results(run.id)]
    assert sorted(kept) == [
        *(("broken", "one"), ("broken", "two"), ("good", "one"), ("good", "two")),
        ("killed", "one"),
    ]


def test_finished_cells_are_skipped_unless_anything_of_them_changed(toys: Toys) -> None:
    (toys.folder / "weights").mkdir()
    (toys.folder / "weights" / "config.json").write_text("{}")
    text = 'models = ["weights", "g*"]\ndtypes = ["float32"]\n'
    assert toys.sweep(text) == 0
    assert toys.sweep(text, "--resume") == 0
    assert len(toys.ran) == 2
    assert toys.sweep(f"{text}seed = 1", "--resume") == 0
    assert len(toys.ran) == 4
    (toys.folder / "weights" / "config.json").write_text('{"other": 1}')
    assert toys.sweep(text, "--resume") == 0
    assert toys.ran[4:] == [f"{toys.folder}/weights:float32:None"]
    assert toys.sweep(text) == 0
    assert len(toys.ran) == 7


def test_every_combination_is_a_cell_and_each_only_once(tmp_path: Path) -> None:
    path = tmp_path / "sweep.toml"
    path.write_text(
        """
        models = ["one", "two", "one"]
        dtypes = ["float32", "bfloat16"]
        devices = ["cpu", "cuda"]
        versions = ["here", "envs/old/bin/python"]
        seed = 3
        attends = "causal"
        evidence = "kept.sqlite"
        [select]
        keyword = "cache"
        [resources]
        gpu = 0.25
        """
    )
    plan, cells, evidence = sweep.read(path)
    assert len({cell.key for cell in cells}) == len(cells) == 2 * 2 * 2 * 2
    assert cells[0].name == "one · float32 · cpu"
    assert cells[-1].name == f"two · bfloat16 · cuda · {tmp_path}/envs/old/bin/python"
    settings = [cell.settings for cell in cells]
    assert {(s.seed, s.keyword, s.attends) for s in settings} == {(3, "cache", "causal")}
    assert evidence == tmp_path / "kept.sqlite"
    assert plan.resources == Resources(1, 0.25, 0.0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("models = [", "not TOML"),
        ("models = ['a']\nkeyword = 'x'", "unknown field `keyword`"),
        ("models = ['a']\n[resources]\ncpu = true", "Expected `int`, got `bool`"),
        ("models = ['a', 1]", "$.models[1]"),
        ("models = ['a']\nprofile = 'quik'", "'quik': is unknown"),
        ("models = ['a']\ndtypes = ['int4']", "Invalid enum value 'int4'"),
    ],
)
def test_bad_files_are_refused_in_one_line_before_anything_runs(
    toys: Toys, text: str, words: str
) -> None:
    with pytest.raises(BadInput) as refused:
        toys.sweep(text)
    message = str(refused.value)
    assert str(toys.folder / "sweep.toml") in message
    assert words in message
    assert "\n" not in message
    assert [path.name for path in toys.folder.iterdir()] == ["sweep.toml"]


def test_environments_are_pythons_that_have_what_claims_need(tmp_path: Path) -> None:
    assert {"python", "torch", "transformers"} <= environments.find("here").versions.keys()
    bare = tmp_path / "python"
    bare.write_text('#!/bin/sh\necho \'{"python": "3.11.0"}\'\n')
    bare.chmod(0o755)
    with pytest.raises(BadInput, match="has no torch"):
        environments.find(str(bare))
    bare.write_text("#!/bin/sh\nexit 3\n")
    environments._find.cache_clear()
    with pytest.raises(BadInput, match="is not a working Python"):
        environments.find(str(bare))
