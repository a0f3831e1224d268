"""Compiles a model (`torch.compile`) and runs it, with proof that compiled code ran."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
import transformers
from torch import Tensor
from torch._dynamo.backends.registry import lookup_backend
from torch._dynamo.exc import TorchDynamoException

from assay.harness.checking.comparing import Unsettled
from assay.harness.models.capabilities import caches
from assay.harness.models.machine.shortage import ENDS, pass_on
from assay.harness.models.subject import Subject
from assay.harness.models.subject.memo import memo
from assay.harness.models.subject.rows import Rows
from assay.harness.operations import generation, variants
from assay.harness.operations.generation import Generated
from assay.harness.results.errors import Missing, brief

BACKENDS = ("aot_eager", "inductor")
"""Traced and run operation by operation; or compiled to machine code, by a C++ compiler."""

LENGTHS = (14, 9, 5)
"""The lengths of prompts for which a model is compiled: a third one needs nothing new."""

DYNAMIC = {"aot_eager": None, "inductor": True}
"""Whether lengths are variables from the start, or after they have changed: one compilation
of machine code takes many seconds.
"""


class Backend:
    """A backend of `torch.compile` that counts how often its code ran."""

    def __init__(self, name: str) -> None:
        self.name, self.ran = name, 0

    def __call__(self, graph: Any, inputs: Any, **options: Any) -> Any:
        """The compiled ``graph``."""
        code = lookup_backend(self.name)(graph, inputs, **options)

        def counted(*args: Any) -> Any:
            self.ran += 1
            return code(*args)

        # By this attribute dynamo knows what takes its arguments in a list.
        if getattr(code, "_boxed_call", False):
            counted._boxed_call = True  # type: ignore[attr-defined]
        return counted

    def __deepcopy__(self, memo: dict[int, Any]) -> Backend:
        """The library copies the settings of its compilation."""
        return self


@dataclass(frozen=True)
class Compiled:
    """A copy of a subject whose forward is compiled."""

    subject: Subject
    backend: Backend

    def rows(self, ids: Tensor) -> Rows:
        """The rows of ``ids`` [batch, n] by compiled code, without states.

        Raises `Missing` where the model cannot be compiled, and `Unsettled` where all of it ran
        uncompiled.
        """
        before = self.backend.ran
        with _compilation():
            # A part of longer ids has strides and a base, for which all would be compiled again.
            rows = self.subject.rows(
                ids.clone(memory_format=torch.contiguous_format), states=False
            )
        if self.backend.ran == before:
            raise Unsettled("no part of the pass is compiled")
        return rows


@contextmanager
def _compilation() -> Iterator[None]:
    """Compiled code draws the random numbers of uncompiled code within the block.

    By default torch's own compiler draws others of the same seed, so that a model that hashes by
    random directions (Reformer) computes something else.
    """
    from torch._inductor import config  # takes a second

    try:
        with config.patch(fallback_random=True):
            yield
    except TorchDynamoException as error:
        raise Missing(f"compilation: the model is not compiled ({brief(error)})") from error


def forward(subject: Subject, backend: str) -> Compiled:
    """The subject with a compiled forward, the same at each call.

    Raises `Missing` where there is no C++ compiler for it.
    """
    require(subject, backend)
    copies = _compiled(subject)
    if backend not in copies:
        counted, copied = Backend(backend), _copied(subject)
        model: Any = copied.model
        model.forward = torch.compile(model.forward, backend=counted, dynamic=DYNAMIC[backend])
        # What listens to routers would be compiled too, and code after a mode's break is wrong.
        copied.settings = replace(copied.settings, listens=False)
        copies[backend] = Compiled(copied, counted)
    return copies[backend]


def _copied(subject: Subject) -> Subject:
    """A copy to be compiled, of a class of which nothing is compiled."""
    torch.compiler.reset()  # limits of recompilations count for a class, not for a model
    copied = variants.sharing_weights(subject)
    # What is looked up once is looked up now: code that ran under a watch is never compiled.
    copied.rows(copied.content(torch.arange(copied.shortest + 1, device=copied.device)[None]))
    return copied


@memo
def _compiled(subject: Subject) -> dict[str, Compiled]:
    return {}


def require(subject: Subject, backend: str) -> None:
    """Raise `Missing` where ``backend`` needs a C++ compiler and none is found."""
    if backend != "inductor" or subject.device.type != "cpu":
        return
    names = (os.environ.get("CXX"), "g++", "clang++", "cl")
    if not any(shutil.which(name) for name in names if name):
        raise Missing("compilation: no C++ compiler is found (g++ or clang++; CXX names another)")


def continued(subject: Subject, ids: Tensor, backend: str) -> Generated:
    """``ids`` [batch, n] continued greedily on a static cache by a compiled forward.

    Raises `Missing` where the library does not compile it, or has no static cache for it.
    """
    require(subject, backend)
    copies = _generating(subject)
    if backend not in copies:
        counted = Backend(backend)
        copies[backend] = _copied(subject), counted, _settings(counted)
    copied, counted, settings = copies[backend]
    before = counted.ran
    try:
        with _compilation():
            generated = generation.scores(
                copied, ids, "static", cached=True, compile_config=settings
            )
    except ENDS as error:
        pass_on(error)
        caches.make(subject, "static", *ids.shape)  # raises `Missing` where there is none
        raise
    if counted.ran == before:
        raise Missing("compilation: generate does not compile this model on this device")
    return generated


@memo
def _generating(subject: Subject) -> dict[str, tuple[Subject, Backend, Any]]:
    return {}


def _settings(backend: Backend) -> Any:
    """The library's settings of a compilation; raises `Missing` in versions without any."""
    if not hasattr(transformers, "CompileConfig"):
        raise Missing("compilation: this version of transformers has no CompileConfig")
    settings: Any = transformers.CompileConfig(backend=backend, mode="default")
    settings._compile_all_devices = True  # else it compiles on accelerators only
    return settings
