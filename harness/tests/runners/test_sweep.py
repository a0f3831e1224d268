"""Sweeps on one machine: cells that hold, break and die, and sweeps that are cut short."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from assay.harness.results.evidence import Evidence
from assay.harness.runners import environments, runner
from assay.harness.runners.sweeps import cell
from assay.harness.runners.sweeps.ledger import Ledger
from assay.harness.runners.sweeps.plan import read
from assay.harness.tests.support import toy_runs
from assay.harness.tests.support.sessions import ROOT, sweep_in


@dataclass
class Toys:
    """A folder with a sweep over toys of runs (`harness.tests.support.toy_runs`)."""

    folder: Path

    def write(self, text: str) -> Path:
        """Write sweep.toml, with the toys for its claims."""
        path = self.folder / "sweep.toml"
        dtypes = "" if "dtypes" in text else 'dtypes = ["float32"]\n'
        path.write_text(f'{dtypes}{text}\n[select]\nclaims = ["{self.folder}/claims"]\n')
        return path

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Begin the sweep, in order."""
        return sweep_in(self.folder, "--in-order", *arguments)

    def run(self, *arguments: str) -> tuple[int, list[str]]:
        """The sweep from start to end: its exit code and its lines."""
        process = self.start(*arguments)
        output, _ = process.communicate(timeout=300)
        return process.returncode, output.splitlines()

    @property
    def ran(self) -> list[str]:
        """Which claims were run, in order, as model:dtype:claim."""
        path = self.folder / "ran"
        return path.read_text().split() if path.exists() else []

    def results(self) -> list[tuple[str, str, str]]:
        """Every claim in the merged evidence: model, dtype and name."""
        with Evidence.read(self.folder / "sweep.sqlite") as evidence:
            return sorted(
                (result.subject, run.dtype, result.name)
                for run in evidence.runs()
                for result in evidence.results(run.id)
            )

    def wait_until(self, happened: Callable[[], object]) -> None:
        """Wait for something that a sweep does."""
        end = time.monotonic() + 120
        while not happened():
            assert time.monotonic() < end, "it never happens"
            time.sleep(0.02)


@pytest.fixture
def toys(tmp_path: Path) -> Toys:
    """Toys of three claims."""
    (tmp_path / "claims").mkdir()
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text(
        'pytest_plugins = ["assay.harness.tests.support.toy_runs"]\n'
    )
    (tmp_path / "claims" / "test_toys.py").write_text(toy_runs.CLAIMS)
    return Toys(tmp_path)


def every(*cells: str) -> list[tuple[str, str, str]]:
    """All three claims of cells such as ``good:float32``."""
    names = ("one", "two", "three")
    return sorted((*each.split(":"), name) for each in cells for name in names)  # type: ignore[misc]


def line(lines: list[str], *words: str) -> str:
    """The only line that has all these words."""
    (match,) = [each for each in lines if all(word in each for word in words)]
    return match


def test_a_cell_that_dies_or_is_refused_takes_only_itself(toys: Toys) -> None:
    toys.write(
        'models = ["killed", "refused", "broken", "killed-once"]\n'
        'versions = ["here", "absent", "/no/such/python"]\nretries = 1'
    )
    code, lines = toys.run()
    assert code == 1
    assert line(lines, "killed · float32 · cpu: failed").endswith("s")
    assert "killed by SIGKILL 2 times" in line(lines, "killed · float32 · cpu: failed")
    assert "refused: is no model" in line(lines, "refused · float32 · cpu: failed")
    assert "T1 refuted, 1 refuted, 2 upheld" in line(lines, "broken · float32 · cpu: broke")
    assert "3 upheld" in line(lines, "killed-once · float32 · cpu: held")
    assert "no such environment" in line(lines, "broken · float32 · cpu · absent: failed")
    assert "no Python" in line(lines, "broken · float32 · cpu · /no/such/python: failed")
    assert line(lines, "12 cells") == "12 cells: 1 held, 1 broke, 10 failed"
    # Of the one that was killed twice, what it had recorded is kept; of the other, all is.
    results = [("killed", "float32", "one")]
    assert toys.results() == sorted([*results, *every("broken:float32", "killed-once:float32")])
    ran = [each.rpartition(":")[2] for each in toys.ran if each.startswith("killed-once:")]
    assert ran == ["one", "two", "two", "three"]
    left = {path.suffix for path in (toys.folder / "sweep.sqlite.cells").iterdir()}
    assert left == {"", ".log", ".sqlite"}


def test_a_sweep_that_is_killed_is_gone_on_with(toys: Toys) -> None:
    toys.write('models = ["good", "waits"]')
    (toys.folder / "waits").write_text("")
    process = toys.start()
    toys.wait_until(lambda: "waits:float32:two" in toys.ran)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    (toys.folder / "waits").unlink()
    good = [f"good:float32:{name}" for name in NAMES]
    begun = ["waits:float32:one", "waits:float32:two"]
    assert toys.ran == [*good, *begun]
    code, lines = toys.run("--resume")
    assert code == 0, lines
    assert toys.results() == every("good:float32", "waits:float32")
    assert toys.ran == [*good, *begun, "waits:float32:two", "waits:float32:three"]
    assert "known from before" in line(lines, "good · float32")

    # Another seed is another cell, and without --resume all are.
    before = toys.ran
    toys.write('models = ["good"]\nseed = 1')
    assert toys.run("--resume")[0] == 0
    assert toys.ran == [*before, *good]
    assert toys.run()[0] == 0
    assert toys.ran == [*before, *good, *good]


NAMES = ("one", "two", "three")


def test_a_cell_of_a_pattern_is_not_that_of_a_model_that_fits_it(toys: Toys) -> None:
    toys.write('models = ["g*", "good"]')
    assert toys.run()[0] == 0
    assert len(toys.ran) == 2 * len(NAMES)
    code, lines = toys.run("--resume")
    assert (code, len(toys.ran)) == (0, 2 * len(NAMES)), lines
    assert "3 upheld, known from before" in line(lines, "g* · float32")
    # What is known of all that fit says nothing of a run of one of them.
    toys.write('models = ["g*"]\nseed = 1')
    assert toys.run()[0] == 0
    toys.write('models = ["good"]\nseed = 1')
    assert toys.run("--resume")[0] == 0
    assert len(toys.ran) == 4 * len(NAMES)


def test_claims_that_are_not_in_the_clone_are_refused_before_anything_runs(toys: Toys) -> None:
    path = toys.write('models = ["good"]')
    path.write_text('models = ["good"]\n[select]\nclaims = ["claims/test_none.py::test_it"]\n')
    code, lines = toys.run()
    assert code == 4
    place = f"claims/test_none.py::test_it is not in the clone ({ROOT})"
    assert lines == [f"error: {path}: select.claims: {place}"]


def test_two_sweeps_do_not_share_a_file(toys: Toys) -> None:
    toys.write('models = ["waits"]')
    (toys.folder / "waits").write_text("")
    first = toys.start()
    toys.wait_until(lambda: "waits:float32:two" in toys.ran)
    code, lines = toys.run("--resume")
    assert code == 4
    assert lines == [
        f"error: {toys.folder}/sweep.sqlite.cells: another sweep uses this folder now"
    ]
    first.send_signal(signal.SIGINT)
    first_output, _ = first.communicate(timeout=60)
    assert first.returncode == 130, first_output
    assert "interrupted" in first_output
    assert "Traceback" not in first_output
    assert toys.ran == ["waits:float32:one", "waits:float32:two"]


def job(toys: Toys, files: Path) -> cell.Job:
    """The first cell of the toys' sweep."""
    here = environments.find("here")
    return cell.Job(read(toys.folder / "sweep.toml").cells[0], here.python, toys.folder, files)


def test_where_no_files_are_shared_they_travel_with_the_outcome(
    toys: Toys, tmp_path: Path
) -> None:
    toys.write('models = ["broken"]')
    outcome = cell.run(job(toys, tmp_path / "elsewhere" / "cell"))
    assert outcome.state == runner.BROKE
    assert set(outcome.files) == {".sqlite", ".log", ".xml"}
    assert not (tmp_path / "elsewhere").exists()
    path = tmp_path / "arrived.sqlite"
    path.write_bytes(outcome.files[".sqlite"])
    kept = runner.last_outcome(path)
    assert kept is not None
    assert kept.verdicts == {"upheld": 2, "refuted": 1}


def test_a_cell_that_had_ended_before_its_worker_was_lost_is_not_run_again(
    toys: Toys, tmp_path: Path
) -> None:
    toys.write('models = ["good"]')
    here = job(toys, tmp_path / "cell")
    assert cell.run(here).state == runner.HELD
    assert cell.run(here).state == runner.HELD
    assert len(toys.ran) == 3


def test_a_cell_is_known_only_of_the_same_weights(toys: Toys) -> None:
    path = toys.write('models = ["weights"]')
    (toys.folder / "weights").mkdir()
    (toys.folder / "weights" / "digest").write_text("1" * 64)
    sweep, here = read(path), environments.find("here")
    with Ledger(sweep, resume=True) as ledger:
        begun = job(toys, ledger.folder / "cell")
        assert ledger.stored_outcome(begun.cell, here, lambda model: "1" * 64) is None
        ledger.take(begun, cell.run(begun))
        outcome = ledger.stored_outcome(begun.cell, here, lambda model: "1" * 64)
        assert outcome is not None
        assert (outcome.state, outcome.verdicts) == (runner.HELD, {"upheld": 3})
        assert ledger.stored_outcome(begun.cell, here, lambda model: "2" * 64) is None
