"""A sweep on a cluster: every cell a task of Ray, with its resources.

Ray schedules tasks, and restarts one whose worker or node is lost.
Every machine has the clone, the interpreters and the models under the same paths; the folder of
the evidence need not be shared (`harness.runners.sweeps.cell`), though the results of a lost
worker are resumed only where it is.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from assay.harness.results.errors import BadInput
from assay.harness.runners.runner import FAILED, PACKAGE, Outcome
from assay.harness.runners.sweeps import cell
from assay.harness.runners.sweeps.cell import Job, News, one_line
from assay.harness.runners.sweeps.plan import Resources, SweepCell

GIGABYTE = 10**9

POLL = 0.5
"""Seconds between polls for started cells."""

ANSWER = 10.0
"""Seconds within which a cluster must answer."""

LOCAL = "local"
"""The address of a cluster of one node that is started here."""


def installed() -> bool:
    """Whether Ray is installed; does not import it."""
    return importlib.util.find_spec("ray") is not None


def needs(cell: SweepCell, resources: Resources) -> dict[str, float]:
    """The resources of a cell, by Ray's names; memory in bytes."""
    required = {"CPU": resources.cpu, "memory": int(resources.memory * GIGABYTE)}
    required["GPU"] = resources.gpu if cell.on_accelerator else 0
    return {name: amount for name, amount in required.items() if amount}


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """Ray, in the cluster at ``address``.

    None: the one that ``RAY_ADDRESS`` names or that runs on this machine; else, or for `LOCAL`,
    one is started here and ended afterwards.  Raises `BadInput` where there is none.
    """
    _look_for(address or os.environ.get("RAY_ADDRESS", ""))
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage statistics
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # a cell says its device
    import ray

    own = not ray.is_initialized()
    if own:
        try:
            ray.init(
                address=address,
                runtime_env={"env_vars": {"PYTHONPATH": str(PACKAGE)}},
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                configure_logging=True,
            )
        except (ConnectionError, ValueError, RuntimeError) as error:
            why = one_line(str(error))
            raise BadInput(f"Ray: no cluster at {address or 'hand'} ({why})") from error
    try:
        yield ray
    finally:
        if own:
            ray.shutdown()


def _look_for(address: str) -> None:
    """Raise `BadInput` where nothing answers at ``host:port``: Ray would wait for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdecimal()):
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), ANSWER).close()
    except (OSError, OverflowError) as error:
        raise BadInput(f"Ray: no cluster at {address} ({error})") from error


def outcomes(ray: Any, jobs: Sequence[Job], resources: Resources) -> Iterator[News]:
    """Run all jobs as tasks, where resources are free, and yield their starts and outcomes."""
    task = ray.remote(cell.run)
    waiting: dict[Any, Job] = {}
    for job in jobs:
        required = needs(job.cell, resources)
        if not _has_room(ray, required):
            amounts = ", ".join(f"{name} {amount:g}" for name, amount in required.items())
            yield job, Outcome(FAILED, f"no node of the cluster has what it takes: {amounts}")
            continue
        job.log.unlink(missing_ok=True)
        options = {"num_cpus": required.get("CPU", 0), "num_gpus": required.get("GPU", 0)}
        options |= {"memory": required["memory"]} if "memory" in required else {}
        waiting[task.options(max_retries=job.retries, **options).remote(job)] = job
    running: set[Path] = set()
    try:
        while waiting:
            ended, _ = ray.wait(list(waiting), timeout=POLL)
            for job in waiting.values():
                # A cell's first act is its log, where files are shared.
                if job.files not in running and job.log.exists():
                    running.add(job.files)
                    yield job, None
            for each in ended:
                job = waiting.pop(each)
                yield job, _outcome(ray, each)
    finally:
        for each in waiting:
            ray.cancel(each, force=True)


def _outcome(ray: Any, ended: Any) -> Outcome:
    try:
        outcome: Outcome = ray.get(ended)
    except ray.exceptions.RayError as error:
        first = (str(error).strip().splitlines() or [""])[0]
        return Outcome(FAILED, one_line(f"lost by Ray: {type(error).__name__}: {first}"))
    return outcome


def _has_room(ray: Any, required: dict[str, float]) -> bool:
    """Whether any node, if idle, has these resources: otherwise the task would wait for ever."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return any(all(has.get(name, 0) >= n for name, n in required.items()) for has in nodes)
