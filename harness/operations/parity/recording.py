"""Records a pass: its outputs, those of its blocks, and what each module gets and returns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from assay.harness.models.subject import Subject, blocks, encoders
from assay.harness.models.subject.roles import Role
from assay.harness.models.subject.rows import Rows
from assay.harness.models.subject.wrapped import Wrapped

STATE, OUTPUTS = "state ", ("logits", "output")
"""Names of rows: of the blocks' outputs, numbered, and of the model's."""

GETS, RETURNS = "gets", "returns"


def block_names(subject: Subject) -> list[str]:
    """The names of the blocks' modules, in order; empty where there is no list of blocks."""
    try:
        stack = list(blocks.find(subject))
    except LookupError:
        return []
    names = {id(module): name for name, module in subject.model.named_modules()}
    return [_own_name(subject, names.get(id(block), "")) for block in stack]


def in_words(where: str, names: list[str]) -> str:
    """A row of a state in words, by the ``names`` of the blocks: what the first one gets, or the
    output of one.
    """
    state, _, row = where.removeprefix(STATE).partition(",")
    if not where.startswith(STATE) or not state.isdecimal():
        return where
    number = int(state)
    block = f"the output of {names[number - 1]}" if number else "what the first block gets"
    return f"{block},{row}" if row else block


def _own_name(subject: Subject, name: str) -> str:
    """A module's name as its owner knows it: without that of what wraps the model."""
    if isinstance(subject.model, Wrapped):
        return name.removeprefix("inner.").removeprefix("held.0.")
    return name


def rows(subject: Subject, ids: Tensor, states: bool) -> Rows:
    """The rows of a pass over ``ids`` [batch, n], on the CPU: logits, or the last states without.

    With ``states`` the outputs of the blocks come first, ``state 0`` being what the first one
    gets, if there is a list of blocks and each is called once.
    """
    batch, n = ids.shape
    hooked = blocks.states(subject) if states else None
    with torch.random.fork_rng(devices=[]), hooked or nullcontext({}) as hidden:
        torch.manual_seed(0)  # some models hash or sample
        prompt: dict[str, Any] = {}
        if subject.is_encoder_decoder:  # run here, so that its modules are seen too
            prompt[Role.ENCODED] = encoders.encoded(subject, batch)
        outputs = subject.rows(ids.to(subject.device), states=False, **prompt)
    tensors = {f"{STATE}{k}": state for k, state in enumerate(hidden.get("hidden_states", ()))}
    tensors |= outputs.tensors
    return Rows(
        {
            name: tensor.detach().cpu()
            for name, tensor in tensors.items()
            if tensor.ndim == 3 and tensor.shape[:2] == (batch, n)
        }
    )


def common_states(one: Subject, other: Subject, ids: Tensor) -> tuple[bool, str]:
    """Whether the blocks of both models can be compared, and why not."""
    mine, theirs = (
        [
            t.shape[-1]
            for name, t in rows(each, ids, True).tensors.items()
            if name.startswith(STATE)
        ]
        for each in (one, other)
    )
    if not mine or not theirs:
        return False, "a model's blocks are no list of modules, or not called once each"
    if len(mine) != len(theirs):
        return False, f"the models have {len(mine) - 1} and {len(theirs) - 1} blocks"
    return mine == theirs, "the models' blocks differ in width"


@dataclass(frozen=True)
class Site:
    """What a module gets or returns: the number of its block, from 1, or None outside of blocks;
    the module's name; and `GETS` or `RETURNS`.
    """

    block: int | None
    module: str
    part: str


@contextmanager
def module_calls(
    subject: Subject, batch: int, n: int
) -> Iterator[tuple[dict[str, Tensor], dict[str, Site]]]:
    """Record what modules get and return in the passes within a block, of a batch of n tokens.

    Yields the tensors [rows, positions, features], on the CPU and in the order of the pass, and
    their sites.  Their names have the block's number and the module's name within the block, so
    that they are the same wherever a model keeps its blocks.  Tensors of these shapes count:
    [batch, …, …], [1, …, …] and [batch × n, …], which are rows of tokens, of the encoder's too,
    and what is the same in every row.
    """
    tensors: dict[str, Tensor] = {}
    sites: dict[str, Site] = {}
    counts = Counter[str]()

    def note(key: str, site: Site, values: Any) -> None:
        shaped = [each for each in tree_leaves(values) if _has_rows(each, batch, n)]
        # Of the arguments the first one: another implementation passes the others elsewhere.
        for tensor in shaped[:1] if site.part == GETS else shaped:
            counts[f"{key} {site.part}"] += 1
            name = f"{key} {site.part} {counts[f'{key} {site.part}']}"
            copied = tensor.detach().cpu().clone()
            tensors[name], sites[name] = copied.reshape(-1, *copied.shape[-2:]), site

    def before(key: str, name: str, block: int | None) -> Any:
        site = Site(block, name, GETS)
        return lambda module, inputs, kwargs: note(key, site, (inputs, kwargs))

    def after(key: str, name: str, block: int | None) -> Any:
        site = Site(block, name, RETURNS)
        return lambda module, inputs, result: note(key, site, result)

    hooks = []
    for module, key, name, block in _modules(subject):
        gets, returns = before(key, name, block), after(key, name, block)
        hooks.append(module.register_forward_pre_hook(gets, with_kwargs=True))
        hooks.append(module.register_forward_hook(returns))
    try:
        yield tensors, sites
    finally:
        for hook in hooks:
            hook.remove()


def _modules(subject: Subject) -> Iterator[tuple[nn.Module, str, str, int | None]]:
    """Every module but the model itself, with its key, its name, and the number of its block."""
    stack = block_names(subject)
    base = f"{subject.model.base_model_prefix}." if subject.model.base_model_prefix else ""
    for full, module in subject.model.named_modules():
        name = _own_name(subject, full)
        whole = module in (subject.model, getattr(subject.model, "inner", None))
        if not name or whole or isinstance(module, nn.ModuleList):
            continue
        for number, block in enumerate(stack, 1):
            if name == block or name.startswith(f"{block}."):
                yield module, f"block {number}{name[len(block) :]}", name, number
                break
        else:
            yield module, name.removeprefix(base), name, None


def _has_rows(value: Any, batch: int, n: int) -> bool:
    if not torch.is_tensor(value) or not value.is_floating_point():
        return False
    shape = value.shape
    return (len(shape) == 3 and shape[0] in (batch, 1)) or tuple(shape[:-1]) == (batch * n,)


@contextmanager
def rounding_to(subject: Subject, dtype: torch.dtype) -> Iterator[None]:
    """Within a block every module's output is rounded to ``dtype``, and goes on in its own."""

    def rounded(value: Any) -> Any:
        if torch.is_tensor(value) and value.is_floating_point():
            return value.to(dtype).to(value.dtype)
        if type(value) is tuple:
            return tuple(map(rounded, value))
        return value

    hooks = [
        module.register_forward_hook(lambda module, inputs, result: rounded(result))
        for module in subject.model.modules()
        if module is not subject.model
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def moved_tables(subject: Subject, dtype: torch.dtype) -> Iterator[None]:
    """Within a block every other number of the buffers is a unit of ``dtype`` nearer to 0.

    Tables, as of rotary frequencies, come out so by another formula; at far positions that moves
    angles by more than rounding does.
    """
    tables = [each for each in subject.model.buffers() if each.is_floating_point()]
    before = [each.clone() for each in tables]
    try:
        for each in tables:
            odd = torch.arange(each.numel(), device=each.device).view(each.shape) % 2
            each.mul_(1 - torch.finfo(dtype).eps * odd.to(each.dtype))
        yield
    finally:
        for each, values in zip(tables, before, strict=True):
            each.copy_(values)
