"""One of the two processes over which a model is spread (`harness.operations.parallel`).

    python -m assay.harness.operations.ranks FD RANK FILE

A request is a pickle through the connection at file descriptor FD: the name of a function, whose
first argument is the process's `Rank`, and its other arguments.  The answer is what the function
returns or raises.
"""

from __future__ import annotations

import importlib
import os
import pickle
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor, distributed

from assay.harness.models.capabilities import releases
from assay.harness.models.machine.shortage import ENDS, shortage
from assay.harness.models.subject import Subject, compat, experts
from assay.harness.models.subject.rows import Rows
from assay.harness.models.subject.settings import SubjectSettings
from assay.harness.operations import generation, training
from assay.harness.operations.generation import Generated
from assay.harness.operations.training import Gradients, Sample
from assay.harness.results.errors import Missing, brief, refusals

PROCESSES = 2
"""The processes over which a model is spread."""

LAST_WORDS = 400
"""Characters of a process's errors that are quoted."""

PATIENCE = timedelta(minutes=10)
"""How long a process waits for the other one: longer than anyone waits for its answer."""


@dataclass(frozen=True)
class Source:
    """A saved model: its class as ``module:name``, and what a `Subject` of it has.

    ``experts`` are the experts implementations of its configurations (`compat.settings`).
    ``sow`` is a function, as ``module:name``, with its arguments: it injects the fault of the
    model into what is loaded.
    """

    name: str
    folder: str
    model_class: str
    dtype: torch.dtype
    attention: str
    experts: tuple[str | None, ...]
    attends: str | None
    sow: tuple[str, ...] = ()


@dataclass
class Rank:
    """One process, and its part of the model for each plan that divides it."""

    number: int
    subjects: dict[str, Subject] = field(default_factory=dict)


def named(path: str) -> Any:
    """What is called ``module:name``."""
    module, _, name = path.partition(":")
    value = importlib.import_module(module)
    for part in name.split("."):
        value = getattr(value, part)
    return value


def load(rank: Rank, plan: str, source: Source, sizes: dict[str, int]) -> list[str]:
    """Load this process's part of a model; returns the names of the parameters that are divided.

    ``sizes`` are over how many processes each kind of parallelism goes.  Raises `Missing` where
    the library refuses to divide the model so.
    """
    if torch.accelerator.is_available():
        raise Missing("the processes see an accelerator, which the library would use")
    try:
        model_class = named(source.model_class)
    except (ImportError, AttributeError) as error:
        what = f"{plan}-parallel: another process cannot import the model's class"
        raise Missing(f"{what} ({brief(error)})") from error
    # Before 5.18 it divides even sizes only.
    with refusals(f"{plan}-parallel", "must be divisible by"):
        model = model_class.from_pretrained(
            source.folder,
            **releases.parallel(sizes),
            **compat.in_dtype(source.dtype),
        )
    configs = [config for config, _ in compat.settings(model, experts.IMPLEMENTATION)]
    compat.restore(list(zip(configs, source.experts, strict=True)), experts.IMPLEMENTATION)
    model.eval().requires_grad_(False)
    if source.sow:
        named(source.sow[0])(model, *source.sow[1:])
    subject = rank.subjects[plan] = Subject(
        source.name, model, settings=SubjectSettings(source.attends)
    )
    if subject.attention != source.attention:  # which may be one that some parts refuse
        compat.set_attention(model, source.attention)
    return [name for name, part in model.named_parameters() if _dim(part) is not None]


def rows(rank: Rank, plan: str, ids: Tensor, zeroed: bool) -> Rows:
    """The rows of a pass over ``ids`` [batch, n]."""
    with _control(rank, plan, zeroed) as subject:
        return subject.rows(ids).map(_whole)


def greedy(rank: Rank, plan: str, ids: Tensor, zeroed: bool) -> Generated:
    """``ids`` [batch, n] continued greedily on a cache."""
    with _control(rank, plan, zeroed) as subject:
        return replace(generation.scores(subject, ids, "greedy", cached=True), cache=None)


def gradients(
    rank: Rank, plan: str, samples: list[Sample], names: list[str], zeroed: bool
) -> Gradients:
    """`training.gradients`, each of them whole."""
    with _control(rank, plan, zeroed) as subject:
        own = training.gradients(subject, samples, names)
        return {name: _whole(gradient) for name, gradient in own.items()}


@contextmanager
def _control(rank: Rank, plan: str, zeroed: bool) -> Iterator[Subject]:
    """The subject; if ``zeroed``, the last process's shard of one weight is zero in the block.

    It is the last weight that is divided along its inputs, or else of any that are.
    """
    subject = rank.subjects[plan]
    own = dict(subject.model.named_parameters())
    sharded = [p for p in own.values() if p.ndim > 1 and _dim(p) is not None]
    inputs = [p for p in sharded if _dim(p) == p.ndim - 1]
    if not zeroed or not sharded or rank.number != PROCESSES - 1:
        yield subject
        return
    divided: Any = (inputs or sharded)[-1]
    shard = divided.to_local().detach()
    before = shard.clone()
    try:
        shard.zero_()
        yield subject
    finally:
        shard.copy_(before)


def _dim(weight: Tensor) -> int | None:
    """The dimension along which ``weight`` is divided; None where every process has all of it."""
    for placement in getattr(weight, "placements", ()):
        if (dim := getattr(placement, "dim", None)) is not None:
            return dim % weight.ndim
    return None


def _whole(tensor: Tensor) -> Tensor:
    """A tensor of all processes."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def main(descriptor: str, number: str, file: str) -> None:
    """Answer requests until the connection is closed."""
    requests: Connection = Connection(int(descriptor))
    store = distributed.FileStore(file, PROCESSES)  # type: ignore[attr-defined]  # not in __all__
    distributed.init_process_group(
        "gloo", store=store, rank=int(number), world_size=PROCESSES, timeout=PATIENCE
    )
    rank = Rank(int(number))
    while True:
        try:
            function, *arguments = pickle.loads(requests.recv_bytes())
        except EOFError:
            os._exit(0)  # gloo takes its time where the other process is gone
        answer: tuple[str, Any]
        try:
            answer = "returned", named(function)(rank, *arguments)
        except Missing as missing:
            answer = "missing", str(missing)
        except ENDS as error:
            traceback.print_exc()
            lacking = shortage(error)
            answer = ("lost", lacking) if lacking else ("raised", brief(error, LAST_WORDS))
        requests.send_bytes(pickle.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
