"""Subjects for tests of the harness: tiny models of every type, and some with known defects."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from assay.fixtures import families
from assay.fixtures.subjects import load
from assay.harness.checking.check import Broken, Check
from assay.harness.checking.claim import Session
from assay.harness.checking.profiles import Profile
from assay.harness.checking.reference import Reference
from assay.harness.models.loading import loading
from assay.harness.models.loading.runs import Options
from assay.harness.models.subject import Subject
from assay.harness.models.subject.provenance import UNKNOWN
from assay.harness.models.subject.rows import Rows
from assay.harness.results.specs import ModelKind
from assay.harness.results.verdicts import Result

CAUSAL = (
    *("gpt2", "gpt_neo", "gpt_neox", "opt", "llama", "mistral", "gemma2", "qwen2", "bloom"),
    *("mamba", "mixtral"),
)
ENCODERS = ("bert", "roberta", "distilbert", "albert", "modernbert")
TYPES = (*CAUSAL, *ENCODERS, "t5")


@cache
def toy(spec: str, dtype: str = "float32") -> Subject:
    """``tiny:<spec>``, or whatever ``--model`` takes; shared by all tests, not to be changed."""
    named = spec if ":" in spec or spec == ModelKind.CHAT else f"tiny:{spec}"
    return load(named, Options(dtype=dtype))


def fresh(spec: str) -> Subject:
    """A copy of `toy` that a test may damage."""
    shared = toy(spec)
    return Subject(
        *(shared.name, copy.deepcopy(shared.model), shared.tokenizer, shared.digest),
        provenance=shared.provenance,
    )


def adopted(name: str = "llama", dtype: torch.dtype = torch.float32) -> Subject:
    """A tiny model of a type, taken from memory in this dtype; a copy of a test's own."""
    model, cpu = families.tiny(name), torch.device("cpu")
    return loading.adopt(f"tiny:{name}", model, None, dtype=dtype, device=cpu).subject


def as_trained(spec: str) -> Subject:
    """A copy of `toy` of which nothing says that it was made from a seed."""
    return replace(fresh(spec), name=f"somebody's {spec}", provenance=UNKNOWN)


def with_settings(subject: Subject, **changes: Any) -> Subject:
    """The same model, with other settings."""
    return replace(subject, settings=replace(subject.settings, **changes))


def changed(spec: str, change: Callable[[Tensor], Tensor], block: int = 0) -> Subject:
    """A copy of `toy`, the output [batch, n, hidden] of one block going through ``change``."""

    def hook(module: nn.Module, arguments: tuple, result: Any) -> Any:
        if isinstance(result, tuple):
            return (change(result[0]), *result[1:])
        return change(result)

    subject = fresh(spec)
    subject.blocks[block].register_forward_hook(hook)
    return subject


def seeing_ahead(spec: str = "llama") -> Subject:
    """A broken model: its first block adds to each state a tenth of the next token's."""

    def leak(state: Tensor) -> Tensor:
        following = torch.cat([state[:, 1:], torch.zeros_like(state[:, :1])], dim=1)
        return state + 0.1 * following

    return changed(spec, leak)


def prompt(subject: Subject, n: int = 9, batch: int = 2, seed: int = 0) -> Tensor:
    """Ids [batch, n] by seed, none of them padding."""
    drawn = torch.randint(
        subject.vocabulary, (batch, n), generator=torch.Generator().manual_seed(seed)
    )
    return subject.content(drawn)


def one_tensor(values: Tensor, name: str = "state 0") -> Rows:
    """Rows of a single tensor [batch, positions, features]."""
    return Rows({name: values})


def exactly(rows: Rows) -> Reference:
    """A reference whose plain path is without error."""
    return Reference(rows, rows.map(Tensor.double))


def is_broken(check: Check, expected: Reference, observed: Rows) -> bool:
    """Whether the law that ``observed`` is the same as ``expected`` is found broken."""
    try:
        check.same(expected, observed)
    except Broken:
        return True
    return False


def budget(examples: int = 20, shrink: int = 2000, brake: float = math.inf) -> Profile:
    """A profile for one test."""
    return Profile("test", examples, shrink, brake=brake)


def verdict(
    test: Callable[..., None], subject: Subject, profile: Profile | None = None, **session: Any
) -> Result:
    """What a declared law comes to on ``subject``, as the plug-in would have it.

    ``session`` goes to `harness.checking.claim.Session`; draws repeat unless it says otherwise.
    Further arguments of the law are given as ``arguments``.
    """
    arguments = session.pop("arguments", {})
    session.setdefault("derandomize", True)
    made: list[Result] = []

    def settle(claim: Any, subject: Subject, run: Callable[[Session], Result]) -> None:
        made.append(run(Session(profile or budget(), **session)))

    test(assay=SimpleNamespace(settle=settle), subject=subject, **arguments)
    return made[0]


class Time:
    """A clock for the brake, which only a test moves on."""

    now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@contextmanager
def counted(modules: nn.ModuleList) -> Iterator[list[int]]:
    """The numbers of the modules that run, in order, while the block lasts."""
    ran: list[int] = []
    hooks = [
        module.register_forward_hook(lambda *_, i=i: ran.append(i))
        for i, module in enumerate(modules)
    ]
    try:
        yield ran
    finally:
        for hook in hooks:
            hook.remove()
