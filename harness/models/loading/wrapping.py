"""Wraps what maps ids to logits, a plain module or a function, as a model of transformers.

A claim then needs no case of its own for it: what it has not (a cache, positions, generation) is
a capability that it lacks.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from assay.harness.models.machine.shortage import ENDS, shortage
from assay.harness.models.subject import returned
from assay.harness.models.subject.wrapped import Wrapped, WrappedConfig
from assay.harness.results.errors import BadInput, brief

LONGEST = 256
"""Tokens of the longest prompt that is tried for a limit of the context."""


def wrap(name: str, inner: Any) -> PreTrainedModel:
    """``inner`` itself where transformers knows it, else wrapped, with what a pass of it shows.

    The model inside of an adapter (peft) is taken out of it.  Raises `BadInput` where ``inner``
    cannot be called, rejects ids or returns no logits.
    """
    base = getattr(inner, "base_model", None)
    # A model in which transformers put an adapter has both too; its `base_model` is its body.
    peft = hasattr(inner, "peft_config") and not isinstance(inner, PreTrainedModel)
    if peft and isinstance(base, nn.Module):
        inner = getattr(base, "model", base)
    if isinstance(inner, PreTrainedModel):
        return inner
    if isinstance(inner, type) or not callable(inner):
        what = f"the class {inner.__name__}" if isinstance(inner, type) else type(inner).__name__
        raise BadInput(f"{name}: is {what}; give a model, or a function from ids to logits")
    kind = inner if isinstance(inner, FunctionType) else type(inner)
    config: Any = WrappedConfig()
    config.inner = f"{kind.__module__}.{kind.__qualname__}"
    model = Wrapped(config, inner)
    training = [each for each in model.modules() if each.training]
    model.train(False)
    try:
        with torch.no_grad():
            _examine(name, model)
    except BadInput:
        raise
    except ENDS as error:
        why = shortage(error) or brief(error)
        raise BadInput(f"{name}: cannot run ids [1, 4] ({why})") from error
    finally:
        for each in training:
            each.training = True
    return model


def _examine(name: str, model: Wrapped) -> None:
    """Find the parts of a wrapped model and its sizes in a pass."""
    ids = torch.tensor([[0, 1, 2, 3]], device=model.device)
    calls: list[tuple[nn.Module, Any, Any]] = []

    def note(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        calls.append((module, inputs[0] if inputs else None, output))

    hooks = [each.register_forward_hook(note) for each in model.modules() if each is not model]
    try:
        output = model(ids)
    finally:
        for hook in hooks:
            hook.remove()
    rows = returned.tensors(output, *ids.shape)
    logits = rows.get("logits")
    if logits is None:
        raise BadInput(
            f"{name}: returns {returned.described(output)} for ids [1, 4], and no logits"
        )
    model.logits_dtype, model.logits_device = logits.dtype, logits.device
    model.embedding = next(
        (m for m, ins, _ in calls if isinstance(m, nn.Embedding) and _is(ins, ids)), None
    )
    model.head = next(
        (m for m, _, out in reversed(calls) if isinstance(m, nn.Linear) and _is(out, logits)), None
    )
    model.stack = _stack(model, [module for module, _, out in calls if _has_rows(out, ids)])
    if model.stack is not None and not _runs_again(model, model.stack, ids):
        model.stack = None  # a model that keeps its answers: logits alone are judged
    config: Any = model.config
    config.vocab_size = logits.shape[-1]
    config.num_hidden_layers = 0 if model.stack is None else len(list(model.stack.children()))
    weight = getattr(model.embedding, "weight", logits)
    config.hidden_size = weight.shape[-1]
    config.max_position_embeddings = _limit(name, model, ids)


def _runs_again(model: Wrapped, stack: nn.Module, ids: Tensor) -> bool:
    """Whether the blocks run in a second pass over the same ids."""
    calls: list[nn.Module] = []
    hooks = [
        each.register_forward_hook(lambda m, *_: calls.append(m)) for each in stack.children()
    ]
    try:
        model(ids)
    finally:
        for hook in hooks:
            hook.remove()
    return bool(calls)


def _is(one: Any, other: Tensor) -> bool:
    return torch.is_tensor(one) and one.shape == other.shape and torch.equal(one, other)


def _has_rows(output: Any, ids: Tensor) -> bool:
    first = output[0] if isinstance(output, tuple | list) and output else output
    return returned.has_rows(first, *ids.shape)


def _stack(model: Wrapped, called: list[nn.Module]) -> nn.Module | None:
    """The longest list of modules of one class that a pass calls, each with a row for a token."""
    run = {id(module) for module in called}
    lists = [m for m in model.modules() if isinstance(m, nn.ModuleList | nn.Sequential)]
    stacks = [
        each
        for each in lists
        if len({type(block) for block in each}) == 1 and all(id(block) in run for block in each)
    ]
    return max(stacks, key=len, default=None)


def _limit(name: str, model: Wrapped, ids: Tensor) -> int | None:
    """The longest prompt that runs, or None where one of `LONGEST` tokens does."""

    def runs(n: int) -> bool:
        try:
            prompt = ids.repeat(1, -(-n // ids.shape[1]))[:, :n]
            return "logits" in returned.tensors(model(prompt), 1, n)
        except ENDS as error:
            if why := shortage(error):
                raise BadInput(f"{name}: cannot run ids [1, {n}] ({why})") from error
            return False

    if runs(LONGEST):
        return None
    fits, fails = ids.shape[1], LONGEST
    while fails - fits > 1:
        middle = (fits + fails) // 2
        fits, fails = (middle, fails) if runs(middle) else (fits, middle)
    return fits
