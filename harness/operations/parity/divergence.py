"""Finds where two models that should compute the same begin to differ: the block and the module.

A pass's tensors are recorded at every module, in the order of the pass: what a module gets, and
what it returns.  The first that differ by more than their bound name the module.  Where what it
gets differs already, the cause lies before it: in the code that calls it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from assay.harness.models.reference.tolerances import (
    Distance,
    Tolerance,
    distance,
    worst,
)
from assay.harness.models.subject import Subject
from assay.harness.operations.parity.states import block_names, own_name

GETS, RETURNS = "gets", "returns"


@dataclass(frozen=True)
class Divergence:
    """The first place at which two models differ.

    ``block`` counts from 1, 0 is what the first block gets, and None is outside of the blocks (of
    which there are ``blocks``); ``block_name`` is that block's name in the model compared with.
    ``module`` is the module's name there, empty where none has a partner of the same name;
    ``part`` says whether it `GETS` or `RETURNS` what differs.  ``observed`` is the relative
    difference and ``allowed`` its bound.
    """

    block: int | None
    blocks: int
    block_name: str
    module: str
    part: str
    observed: float
    allowed: float

    @property
    def where(self) -> str:
        """The place in words."""
        if self.block is None:
            block = "outside of the blocks"
        elif self.block == 0:
            block = "before the first block"
        else:
            name = f" ({self.block_name})" if self.block_name else ""
            block = f"block {self.block} of {self.blocks}{name}"
        if not self.module and self.block is None:
            return "after the blocks, in no module that both models have"
        if not self.module:
            return f"{block}, in no module that both models have"
        if self.part == RETURNS:
            return f"{block}: {self.module} gets the same and returns something else"
        return f"{block}: in the code that calls {self.module}, which gets something else"

    def as_json(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {**vars(self), "where": self.where}


@dataclass
class Calls:
    """What the modules of a model get and return in a pass, by the module's key, in order.

    The key of a module in a block is the block's number and the name within the block, so that it
    is the same wherever a model keeps its blocks.  ``names`` are the modules' own, by key.
    """

    tensors: dict[str, Tensor] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    blocks: dict[str, int] = field(default_factory=dict)
    parts: dict[str, str] = field(default_factory=dict)


def _keys(subject: Subject) -> Iterator[tuple[nn.Module, str, str, int | None]]:
    """Every module but the model itself, with its key, its name, and the number of its block."""
    stack = block_names(subject)
    base = f"{subject.model.base_model_prefix}." if subject.model.base_model_prefix else ""
    for full, module in subject.model.named_modules():
        name = own_name(subject, full)
        whole = module in (subject.model, getattr(subject.model, "inner", None))
        if not name or whole or isinstance(module, nn.ModuleList):
            continue
        for number, block in enumerate(stack, 1):
            if name == block or name.startswith(f"{block}."):
                yield module, f"block {number}{name[len(block) :]}", name, number
                break
        else:
            yield module, name.removeprefix(base), name, None


@contextmanager
def recorded(subject: Subject, batch: int, n: int) -> Iterator[Calls]:
    """Record what modules get and return in the passes within a block, of a batch of n tokens.

    Tensors of these shapes count: [batch, …, …], [1, …, …] and [batch × n, …], which are rows of
    tokens, of the encoder's too, and what is the same in every row.
    """
    calls, counts, hooks = Calls(), Counter[str](), []

    def note(key: str, part: str, values: Any) -> None:
        some = [each for each in tree_leaves(values) if _has_rows(each, batch, n)]
        # Of the arguments the first one: another implementation passes the others elsewhere.
        for tensor in some[:1] if part == GETS else some:
            place = f"{key} {part}"
            counts[place] += 1
            where = f"{place} {counts[place]}"
            calls.tensors[where] = tensor.detach().clone()
            calls.parts[where] = part
            calls.names[where], number = known[key]
            if number is not None:
                calls.blocks[where] = number

    def before(key: str) -> Any:
        return lambda module, inputs, kwargs: note(key, GETS, (inputs, kwargs))

    def after(key: str) -> Any:
        return lambda module, inputs, result: note(key, RETURNS, result)

    known: dict[str, tuple[str, int | None]] = {}
    for module, key, name, number in _keys(subject):
        known[key] = name, number
        hooks.append(module.register_forward_pre_hook(before(key), with_kwargs=True))
        hooks.append(module.register_forward_hook(after(key)))
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()


def _has_rows(value: Any, batch: int, n: int) -> bool:
    if not torch.is_tensor(value) or not value.is_floating_point():
        return False
    shape = value.shape
    return (len(shape) == 3 and shape[0] in (batch, 1)) or tuple(shape[:-1]) == (batch * n,)


@dataclass(frozen=True)
class Apart:
    """A tensor that differs by more than its bound."""

    name: str
    observed: float
    allowed: float


def first_apart(
    observed: dict[str, Tensor],
    plain: dict[str, Tensor],
    exact: dict[str, Tensor],
    tolerance: Tolerance,
    settled: Tensor | None = None,
) -> Apart | None:
    """The first tensor of ``exact``, in its order, that ``observed`` differs from by too much.

    ``plain`` says how far each may be off.  Rows that are not ``settled`` [batch, n] do not count.
    """
    for name, reference in exact.items():
        mine, usual = observed.get(name), plain.get(name)
        if mine is None or usual is None or not mine.shape == usual.shape == reference.shape:
            continue
        error, allowed = judged(mine, usual, reference, tolerance, settled)
        if not error <= allowed:
            return Apart(name, error, allowed)
    return None


def judged(
    mine: Tensor, usual: Tensor, exact: Tensor, tolerance: Tolerance, settled: Tensor | None
) -> tuple[float, float]:
    """The farthest or the median row's distance from ``exact``, and what is allowed for it."""
    exact = exact.cpu().reshape(-1, *exact.shape[-2:])
    kept = settled if settled is not None and settled.shape == exact.shape[:2] else None

    def off(tensor: Tensor) -> Distance:
        shaped = tensor.cpu().reshape(exact.shape)
        return worst(distance(shaped, exact, kept), "", kept)

    own, seen = off(usual), off(mine)
    pairs = [(seen.error, tolerance.allowed(own.error))]
    if (typical := tolerance.allowed_typically(own.typical)) < float("inf"):
        pairs.append((seen.typical, typical))
    return max(pairs, key=lambda pair: pair[0] / pair[1])


def locate(
    observed: Calls,
    plain: Calls,
    exact: Calls,
    tolerance: Tolerance,
    names: Sequence[str],
    first: int = 0,
    settled: Tensor | None = None,
) -> Divergence | None:
    """The first module of ``exact`` whose partner gets or returns something else; None: none.

    ``names`` are those of the blocks of the model that is compared with; the outputs of those
    before the block ``first`` agree, so what their modules do does not count.
    """
    known = {
        name: tensor
        for name, tensor in exact.tensors.items()
        if exact.blocks.get(name, first) >= first
    }
    apart = first_apart(observed.tensors, plain.tensors, known, tolerance, settled)
    if apart is None:
        return None
    number = exact.blocks.get(apart.name)
    return Divergence(
        block=number,
        blocks=len(names),
        block_name=names[number - 1] if number else "",
        module=exact.names[apart.name],
        part=exact.parts[apart.name],
        observed=apart.observed,
        allowed=apart.allowed,
    )
