"""Sweeps: claims over models × versions × dtypes × devices, as a TOML file names them.

Every combination is a cell: one resumable run (`harness.runners.resumable`) in a process of its
own, so that a crash ends only itself.  Cells run one after another, or as tasks of Ray.  Nothing
here imports torch.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from assay.harness.checking.profiles import check_profile
from assay.harness.results import toml
from assay.harness.results.errors import BadInput
from assay.harness.results.outputs import keep_apart
from assay.harness.results.specs import ModelSpec
from assay.harness.runners import runner
from assay.harness.runners.environments import HERE, Environment
from assay.harness.runners.resumable import Resumable
from assay.harness.runners.runner import FAILED, PACKAGE, Outcome, Settings, Start

Text = Annotated[str, Meta(pattern=r"\S")]
Texts = Annotated[tuple[Text, ...], Meta(min_length=1)]
Dtype = Literal["float32", "bfloat16", "float16", "float64", "auto"]


class Select(Struct, forbid_unknown_fields=True):
    """Which claims: pytest's ``-k`` and ``-m``, and paths relative to the clone."""

    keyword: str = ""
    marker: str = ""
    claims: tuple[Text, ...] = ()


class Resources(Struct, forbid_unknown_fields=True):
    """What one cell takes: processors, GPUs or a part of one, and GB of memory."""

    cpu: Annotated[int, Meta(ge=1, le=10**6)] = 1
    gpu: Annotated[float, Meta(ge=0, le=1e6)] = 1.0
    memory: Annotated[float, Meta(ge=0, le=1e6)] = 0.0


class Plan(Struct, forbid_unknown_fields=True, kw_only=True):
    """The content of a sweep's file (docs/sweep.md)."""

    models: Texts
    dtypes: Annotated[tuple[Dtype, ...], Meta(min_length=1)] = ("auto",)
    devices: Texts = ("cpu",)
    versions: Texts = (HERE,)
    profile: str = "quick"
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    attention: Text | None = None
    attends: Literal["causal", "both"] | None = None
    device_map: Text | None = None
    expectations: Text | None = None
    evidence: Text = "sweep.sqlite"
    select: Select = msgspec.field(default_factory=Select)
    resources: Resources = msgspec.field(default_factory=Resources)


@dataclass(frozen=True)
class Cell:
    """One run of claims: on one model or pattern, with one version, dtype and device."""

    model: str
    version: str
    settings: Settings

    @property
    def name(self) -> str:
        """A name that is unique within its sweep, for people."""
        parts = self.model, self.settings.dtype, self.settings.device, self.version
        return " · ".join(str(part) for part in parts if part != HERE)

    @property
    def key(self) -> str:
        """The same for files; another one once files in the model's folder have changed."""
        states = [(path, path.stat()) for path in sorted(Path(self.model).glob("**/*"))]
        files = [(str(path), state.st_size, state.st_mtime_ns) for path, state in states]
        return hashlib.sha256(repr((self, files)).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Job:
    """A cell that can run: its models, its environment, and an evidence file of its own."""

    cell: Cell
    models: tuple[str, ...]
    environment: Environment
    evidence: Path
    threads: int = 1

    def run(self, start: Start = runner.process) -> Outcome:
        """Run the claims that its evidence lacks; errors are in the outcome."""
        claims = Resumable(
            self.evidence, self.models, self.cell.settings, start=start, threads=self.threads
        )
        try:
            outcome = replace(claims.run(self.environment), results=())  # they may be large
            last = runner.last_outcome(self.evidence)
        except (BadInput, OSError) as error:
            return Outcome(FAILED, str(error))
        if outcome.state == FAILED or last is None:
            return outcome
        return replace(outcome, state=last.state, why=last.why)


def read(path: Path) -> tuple[Plan, tuple[Cell, ...], Path]:
    """The plan in a file, its cells, and the path of its evidence; raises `BadInput`."""
    path = path.absolute()
    folder, content = path.parent, toml.read(path)
    try:
        plan = msgspec.convert(content, Plan)
        check_profile(plan.profile)
    except (msgspec.ValidationError, BadInput) as error:
        raise BadInput(f"{path}: {error}") from error
    evidence = folder / Path(plan.evidence).expanduser()
    named = {f"the model {name}": ModelSpec.recorded(name).path for name in plan.models}
    keep_apart({f"{path}: evidence": evidence}, {k: Path(v) for k, v in named.items() if v})
    settings = Settings(
        paths=plan.select.claims,
        keyword=plan.select.keyword,
        marker=plan.select.marker,
        expectations=plan.expectations and str(folder / plan.expectations),
        **{n: getattr(plan, n) for n in ("profile", "seed", "attention", "attends", "device_map")},
    )
    models = (str(folder / each) if (folder / each).exists() else each for each in plan.models)
    versions = [str(folder / Path(v).expanduser()) if "/" in v else v for v in plan.versions]
    cells = (
        Cell(model, version, replace(settings, dtype=dtype, device=device))
        for version, model, dtype, device in product(
            versions, tuple(models), plan.dtypes, plan.devices
        )
    )
    return plan, tuple(dict.fromkeys(cells)), evidence


def on_ray(jobs: list[Job], resources: Resources) -> Iterator[tuple[Job, Outcome]]:
    """Run jobs as tasks of Ray where resources are free, and yield each as it ends.

    In the cluster that ``RAY_ADDRESS`` names or that runs on this machine, else in one that is
    started here.  Its machines have the clone, the Pythons, the models and the folder of the
    evidence under the same paths.  Raises `BadInput` where there is no cluster.
    """
    import ray

    variables = {"env_vars": {"PYTHONPATH": str(PACKAGE)}}
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR, "include_dashboard": False}
    try:
        ray.init(runtime_env=variables, **quiet)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise BadInput(f"Ray: there is no cluster ({error})") from error
    nodes, waiting = [node["Resources"] for node in ray.nodes() if node["Alive"]], {}
    try:
        for job in jobs:
            needs = {"CPU": float(resources.cpu), "memory": resources.memory * 1e9}
            needs["GPU"] = 0.0 if job.cell.settings.device == "cpu" else resources.gpu
            if not any(all(node.get(name, 0) >= needs[name] for name in needs) for node in nodes):
                # It would wait for ever.
                amounts = ", ".join(f"{name} {n:g}" for name, n in needs.items() if n)
                yield job, Outcome(FAILED, f"no node of the cluster has {amounts}")
                continue
            task = ray.remote(Job.run).options(
                num_cpus=needs["CPU"], num_gpus=needs["GPU"], memory=int(needs["memory"])
            )
            waiting[task.remote(job)] = job
        while waiting:
            (ended,), _ = ray.wait(list(waiting))
            job = waiting.pop(ended)
            try:
                outcome = ray.get(ended)
            except ray.exceptions.RayError as error:
                outcome = Outcome(FAILED, f"lost by Ray: {type(error).__name__}: {error}")
            yield job, outcome
    finally:
        ray.shutdown()  # ends the tasks that still run
