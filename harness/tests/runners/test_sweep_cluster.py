"""Sweeps on a cluster of Ray: two nodes on this machine, and workers that are lost.

`tox -e sweep` runs these: they are marked ``ray``, and `tox -e tests` deselects that.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from assay.harness.results.evidence import Evidence
from assay.harness.tests.support.sessions import Project, law, sweep_in

pytestmark = pytest.mark.ray

PID = "pid.{subject.name.partition(':')[2]}"
WAITING = (
    f'Path(f"{PID}").write_text(str(os.getpid())); '
    "exec(\"while Path('wait').exists(): time.sleep(0.02)\")"
)
MODELS = ("gpt2", "llama", "opt")
NODE = {"num_cpus": 1, "memory": 2 * 10**9, "object_store_memory": 80 * 2**20}


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[Any]:
    """A cluster of two nodes with a processor and 2 GB each."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    made = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    made.add_node(**NODE)
    try:
        yield made
    finally:
        made.shutdown()


def sweep(project: Project, address: str, *arguments: str) -> subprocess.Popen[str]:
    """Begin the sweep in the project's folder."""
    os.environ["RAY_ADDRESS"] = address
    return sweep_in(project.folder, *arguments)


def pid_of(project: Project, model: str) -> int | None:
    """The process in which a model's law waits."""
    path = project.folder / f"pid.{model}"
    text = path.read_text() if path.exists() else ""
    return int(text) if text else None


def test_nothing_is_lost_or_run_twice_when_a_worker_is_killed(
    project: Project, two_nodes: Any
) -> None:
    project.claims(law(1), law(2), law(3, body=WAITING), law(4))
    project.write("wait", "")
    models = ", ".join(f'"tiny:{model}"' for model in MODELS)
    project.write(
        "sweep.toml",
        f'models = [{models}]\n[select]\nclaims = ["{project.folder}/claims"]\n'
        "[resources]\ncpu = 1\nmemory = 1\n",
    )
    process = sweep(project, two_nodes.address)
    # Two nodes: two cells at a time.
    project.wait_until(lambda: sum(pid_of(project, model) is not None for model in MODELS) == 2)
    first = next(model for model in MODELS if pid_of(project, model))
    run = psutil.Process(pid_of(project, first))
    worker = run.parent()
    assert worker is not None
    assert "ray" in " ".join(worker.cmdline())
    (project.folder / f"pid.{first}").unlink()
    worker.send_signal(signal.SIGKILL)
    project.wait_until(lambda: not run.is_running() or run.status() == psutil.STATUS_ZOMBIE)
    (project.folder / "wait").unlink()
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    assert "3 cells: 3 held, 0 broke, 0 failed" in output
    # What the killed run had recorded was not run again; what it was about was.
    assert sorted(project.ran) == sorted("1234" * len(MODELS) + "3")
    with Evidence.read(project.folder / "sweep.sqlite") as evidence:
        runs = evidence.runs()
        results = [(r.name, r.subject) for run in runs for r in evidence.results(run.id)]
    assert [run.exit for run in runs] == [0, 0, 0]
    assert sorted(results) == sorted(
        (f"law {n}", f"tiny:{model}") for n in range(1, 5) for model in MODELS
    )

    project.forget_ran()
    again = sweep(project, two_nodes.address, "--resume")
    output, _ = again.communicate(timeout=300)
    assert again.returncode == 0, output
    assert project.ran == []


def test_a_cell_that_no_node_has_room_for_is_named_and_the_others_run(
    project: Project, two_nodes: Any
) -> None:
    project.claims(law(1))
    project.write(
        "sweep.toml",
        f'models = ["tiny:gpt2"]\ndevices = ["cpu", "cuda"]\n[select]\n'
        f'claims = ["{project.folder}/claims"]\n[resources]\ngpu = 0.5\n',
    )
    process = sweep(project, two_nodes.address)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 1
    why = "no node of the cluster has CPU 1, GPU 0.5"
    assert f"tiny:gpt2 · auto · cuda: failed, {why}" in output
    assert "2 cells: 1 held, 0 broke, 1 failed" in output
    assert project.ran == ["1"]
