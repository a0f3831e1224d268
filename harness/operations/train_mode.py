"""Train mode without anything random."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from assay.harness.models.capabilities import releases
from assay.harness.models.machine import accelerators
from assay.harness.models.subject import Subject
from assay.harness.models.subject.lengths import SHORT
from assay.harness.models.subject.memo import memo
from assay.harness.results.errors import Missing

RANDOM = re.compile(r"drop|noise|jitter", re.IGNORECASE)
"""Names of the numbers in modules and configurations that make a pass in training random."""

MUCH = 10
"""Rows are random if two seeds move them this many times as far as two runs of one seed."""


@contextmanager
def in_training(subject: Subject, checkpoints: bool | None = None) -> Iterator[None]:
    """Train mode without anything random within a block.

    With ``checkpoints`` activations are recomputed on the way back, by torch's reentrant way
    or (False) the other; None: they are kept.  Raises `Missing` where the model cannot, or where
    rows remain random.
    """
    model: Any = subject.model
    with ExitStack() as stack:
        for owner in _owners(subject):
            for name, value in list(vars(owner).items()):
                if isinstance(value, float) and value and RANDOM.search(name):
                    _set(stack, owner, name, 0.0)
            if isinstance(owner, _DropoutNd) and owner.p:
                _set(stack, owner, "p", 0.0)
        was = model.training
        model.train()
        stack.callback(model.train, was)
        if _is_random(subject):
            raise Missing("training-without-dropout: train mode is random, and why is not known")
        if checkpoints is not None:
            if not getattr(model, "supports_gradient_checkpointing", False):
                raise Missing("gradient-checkpointing: the model's class does not support it")
            stack.callback(releases.checkpointing(model, {"use_reentrant": checkpoints}))
        yield


def _owners(subject: Subject) -> list[Any]:
    """Modules, configurations, and settings that modules hold: objects with attributes."""
    model = subject.model
    modules = list(model.modules())
    held = (value for module in modules for value in vars(module).values())
    settings = [
        value
        for value in held
        if hasattr(value, "__dict__")
        and not isinstance(value, nn.Module | Tensor | type)
        and not callable(value)
    ]
    every = (*modules, model.config, subject.config, *settings)
    return list({id(each): each for each in every}.values())


@memo
def _is_random(subject: Subject) -> bool:
    """Whether rows depend on the seed, by more than two runs of one seed differ."""
    ids = subject.content(torch.arange(max(SHORT, subject.shortest), device=subject.device)[None])
    runs = []
    with accelerators.forked(subject.device):
        for seed in (0, 0, 1):
            torch.manual_seed(seed)
            runs.append(subject.rows(ids, states=False).map(Tensor.double))
    once, again, other = (run.tensors.values() for run in runs)
    apart = [float((a - b).norm()) for a, b in zip(once, other, strict=True)]
    noise = [float((a - b).norm()) for a, b in zip(once, again, strict=True)]
    return any(a > MUCH * b for a, b in zip(apart, noise, strict=True))


def _set(stack: ExitStack, owner: Any, name: str, value: float) -> None:
    stack.callback(object.__setattr__, owner, name, getattr(owner, name))
    object.__setattr__(owner, name, value)  # settings may be frozen
