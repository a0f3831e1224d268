"""What a sweep's file says, and how it is refused."""

from __future__ import annotations

import io
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from assay.harness.cli import sweep as command
from assay.harness.models import loading
from assay.harness.models.devices import AUTO
from assay.harness.results.errors import BadInput
from assay.harness.results.records import RunRecord
from assay.harness.runners import environments
from assay.harness.runners.environments import CannotInstall
from assay.harness.runners.runner import FAILED, HELD, Outcome
from assay.harness.runners.sweeps import cluster, plan
from assay.harness.runners.sweeps.board import Board
from assay.harness.runners.sweeps.cell import Job
from assay.harness.runners.sweeps.ledger import same
from assay.harness.runners.sweeps.plan import Resources, read


def written(folder: Path, text: str) -> Path:
    path = folder / "sweep.toml"
    path.write_text(text)
    return path


def test_every_combination_is_a_cell_and_each_only_once(tmp_path: Path) -> None:
    sweep = read(
        written(
            tmp_path,
            """
            models = ["one", "two", "one"]
            dtypes = ["float32", "bfloat16"]
            devices = ["cpu", "cuda"]
            versions = ["here", "envs/old/bin/python"]
            seed = 3
            evidence = "kept/all.sqlite"
            [select]
            keyword = "cache"
            [resources]
            gpu = 0.25
            """,
        )
    )
    assert len(sweep.cells) == 2 * 2 * 2 * 2
    assert len({cell.key for cell in sweep.cells}) == len(sweep.cells)
    assert sweep.cells[0].name == "one · float32 · cpu"
    old = f"{tmp_path}/envs/old/bin/python"
    assert sweep.cells[-1].name == f"two · bfloat16 · cuda · {old}"
    settings = [cell.settings for cell in sweep.cells]
    assert {(s.seed, s.keyword, s.profile) for s in settings} == {(3, "cache", "quick")}
    assert sweep.evidence == tmp_path / "kept" / "all.sqlite"
    assert (sweep.resources, sweep.retries) == (Resources(1.0, 0.25, 0.0), 2)
    assert cluster.needs(sweep.cells[0], Resources(2, 0.25, 4)) == {"CPU": 2, "memory": 4 * 10**9}
    assert cluster.needs(sweep.cells[-1], sweep.resources) == {"CPU": 1, "GPU": 0.25}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("models = [", ["not TOML"]),
        (f"seed = {'9' * 5000}\nmodels = ['a']", ["not TOML"]),
        ("", ["models is missing"]),
        ("model = ['a']", ["unknown key 'model'", "'models' meant?"]),
        ("models = ['a']\nkeyword = 'x'", ["unknown key 'keyword'", "'keyword' in [select]"]),
        ("models = ['a']\nresources = 2", ["resources is 2", "write [resources]"]),
        ("models = ['a']\n[resources]\ncpus = 2", ["'resources.cpus'", "'cpu' meant?"]),
        ("models = ['a']\n[resources]\ncpu = true", ["resources.cpu is True", "not a number"]),
        ("models = ['a']\n[resources]\ncpu = 0", ["resources.cpu is 0", "not a number above 0"]),
        ("models = ['a']\n[resources]\nmemory = -1.0", ["resources.memory is -1.0"]),
        ("models = ['a']\n[resources]\ngpu = nan", ["resources.gpu is nan"]),
        ("models = 'a'", ["models is 'a', not a list of texts"]),
        ("models = []", ["models is []", "empty"]),
        ("models = ['a', 1]", ["models is ['a', 1]", "not a list of texts"]),
        ("models = ['a']\nseed = '0'", ["seed is '0', not a whole number from 0 on"]),
        ("models = ['a']\nretries = -1", ["retries is -1"]),
        ("models = ['a']\nseed = true", ["seed is True"]),
        ("models = ['a']\nprofile = 'quik'", ["profile: 'quik' is unknown", "'quick' meant?"]),
        ("models = ['a']\ndtypes = ['int4']", ["dtypes: 'int4' is unknown", "there are float32"]),
        ("models = ['a']\nattends = 'left'", ["attends: 'left' is unknown", "causal, both"]),
        ("models = ['a']\nexpectations = 'no'", ["expectations:", "is not a folder"]),
        ("models = ['a']\nevidence = '/'", ["evidence: / is a folder"]),
        ("models = ['a']\nevidence = '.'", ["evidence:", "is a folder"]),
        ("models = ['a']\nzebra = 1", ["unknown key 'zebra'; there are models, dtypes"]),
        ("models = ['a']\nevidence = ' '", ["evidence is ' ', not a text"]),
    ],
)
def test_bad_files_are_refused_in_one_line_before_anything_runs(
    tmp_path: Path, text: str, words: list[str]
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(BadInput) as refused:
        command.main([str(path)], None)  # type: ignore[arg-type]
    message = str(refused.value)
    assert all(word in message for word in [str(path), *words]), message
    assert "\n" not in message
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_not_there_and_options_that_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no\.toml: cannot be read"):
        command.main([str(tmp_path / "no.toml")], None)  # type: ignore[arg-type]
    path = written(tmp_path, "models = ['a']")
    with pytest.raises(BadInput, match="--in-order and --ray: choose one"):
        command.main([str(path), "--in-order", "--ray", "local"], None)  # type: ignore[arg-type]


def test_without_ray_an_address_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "installed", lambda: False)
    path = written(tmp_path, "models = ['a']\nversions = ['absent']")
    with pytest.raises(BadInput, match="Ray is not installed"):
        command.main([str(path), "--ray", "local"], None)  # type: ignore[arg-type]


def test_without_ray_it_says_that_cells_run_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cluster, "installed", lambda: False)
    path = written(tmp_path, "models = ['a']\nversions = ['absent']")
    assert command.main([str(path)], None) == 1  # type: ignore[arg-type]
    output = capsys.readouterr().out
    assert output.startswith("Ray is not installed: cells are run in order on this machine")
    assert "1 cell: 0 held, 0 broke, 1 failed" in output


@pytest.mark.parametrize("form", ["127.0.0.1:{}", "ray://127.0.0.1:{}", "[::1]:{}"])
@pytest.mark.parametrize("named_by", ["option", "variable"])
def test_a_cluster_that_does_not_answer_is_refused_at_once(
    form: str, named_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = form.format(free.getsockname()[1])  # nobody listens there
        monkeypatch.setenv("RAY_ADDRESS", address)
        argument = address if named_by == "option" else None
        with pytest.raises(BadInput) as refused, cluster.connected(argument):
            pass
    message = str(refused.value)
    assert message.startswith(f"Ray: no cluster at {address} (")
    assert "\n" not in message
    with (
        pytest.raises(BadInput, match=r"no cluster at 127\.0\.0\.1:70000"),
        cluster.connected("127.0.0.1:70000"),
    ):
        pass


def test_dtypes_are_those_that_models_are_run_in() -> None:
    assert set(plan.DTYPES) == {*loading.DTYPES, AUTO}


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


def test_a_version_is_looked_for_once_whether_it_is_found_or_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = []

    def made(folder: Path, requirements: list[str]) -> None:
        calls.append(requirements)
        raise CannotInstall("there is none")

    monkeypatch.setattr(environments, "prepare", made)
    for _ in range(3):
        with pytest.raises(BadInput, match=r"9\.9: cannot be installed: there is none"):
            environments.find("transformers==9.9")
    assert len(calls) == 1


def test_what_the_models_are_meant_to_do_reaches_every_cell(tmp_path: Path) -> None:
    (plain,) = read(written(tmp_path, "models = ['a']")).cells
    (cell,) = read(written(tmp_path, "models = ['a']\nattends = 'causal'")).cells
    assert cell.key != plain.key
    jobs = [Job(each, *map(Path, ("python", "folder", "files"))) for each in (cell, plain)]
    options = [[w for w in job.request.command if w.startswith("--attends")] for job in jobs]
    assert options == [["--attends=causal"], []]


def test_a_run_is_a_cells_only_if_all_that_matters_is_the_same(tmp_path: Path) -> None:
    (cell,) = read(written(tmp_path, "models = ['a']\n[select]\nkeyword = 'cache'")).cells
    here = environments.find("here")
    from assay import harness

    every = {
        "models": ["a"],
        "keyword": "cache",
        "marker": "",
        "claims": ["claims"],
        "dtype": "auto",
    }
    run = {
        "suite": harness.__version__,
        "profile": "quick",
        "seed": 0,
        "device": "cpu",
        "dtype": "bfloat16",  # which the folder's weights have
        "attention": None,
        "versions": here.versions,
        "subjects": {"a": {"digest": "0"}},
        "selection": every,
    }

    def is_same(**changes: Any) -> bool:
        return same(msgspec.convert(run | changes, RunRecord), cell, here)

    assert is_same()
    others = [
        {"suite": "0"},
        {"profile": "thorough"},
        {"seed": 1},
        {"device": "cuda:0 (a card)"},
        {"device": "cpu, device map auto"},
        {"selection": {k: v for k, v in every.items() if k != "dtype"}},
        {"attention": "eager"},
        {"attends": "causal"},
        {"versions": {**here.versions, "torch": "1.0"}},
        {"selection": {**every, "models": ["a", "b"]}},
        {"selection": {**every, "models": ["*"]}},
        {"selection": {**every, "keyword": ""}},
        {"selection": {**every, "marker": "law"}},
        {"selection": {**every, "claims": ["claims/test_cache.py"]}},
    ]
    assert [is_same(**other) for other in others] == [False] * len(others)
    del run["selection"]
    assert not is_same()


def test_on_a_terminal_each_cell_has_a_line_that_changes(tmp_path: Path) -> None:
    sweep = read(written(tmp_path, "models = ['good', '[bad]']"))
    for height, live in ((25, True), (3, False)):
        file = io.StringIO()
        console = Console(file=file, force_terminal=True, width=100, height=height)
        with Board(sweep.cells, console) as board:
            assert ("queued" in file.getvalue()) is live
            board.running(sweep.cells[0])
            assert "running" in file.getvalue()
            board.ended(sweep.cells[0], Outcome(HELD, verdicts={"upheld": 3}, seconds=2.0))
            board.ended(sweep.cells[1], Outcome(FAILED, "no such [model]"))
        output = file.getvalue()
        assert "3 upheld, 2.0 s" in output
        assert "no such [model]" in output
        assert "[bad] · auto · cpu" in output
        assert ("[2/2]" in output) is not live
