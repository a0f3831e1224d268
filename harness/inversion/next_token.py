"""The model's own distribution of the next token, by an inversion's target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from assay.harness.inversion.candidates import accepted, relative
from assay.harness.inversion.target import Target, output_embedding
from assay.harness.models.capabilities import Missing
from assay.harness.models.machine.shortage import pass_on
from assay.harness.models.subject import Subject
from assay.harness.models.subject.memo import memo


@dataclass(frozen=True)
class Head:
    """The final norm and the output embedding: log-probabilities [..., V] of states [..., F]."""

    norm: nn.Module | None
    head: nn.Module

    def __call__(self, states: Tensor) -> Tensor:
        """Log-probabilities [..., V] of ``states`` [..., F]."""
        with torch.no_grad():
            normed = states if self.norm is None else self.norm(states)
            return torch.log_softmax(self.head(normed).float(), -1)


@dataclass(frozen=True)
class Rest:
    """The blocks behind ``depth`` and the head: log-probabilities [n, V] of states [n, F]."""

    subject: Subject
    depth: int

    def __call__(self, states: Tensor) -> Tensor:
        """Log-probabilities [n, V] of ``states`` [n, F]."""

        def put(module: nn.Module, inputs: Any, options: Any) -> tuple[Any, Any]:
            if "hidden_states" in options:
                return inputs, {**options, "hidden_states": states[None]}
            return (states[None], *inputs[1:]), options

        ids = torch.zeros(1, len(states), dtype=torch.long, device=states.device)
        block = self.subject.blocks[self.depth]
        hook = block.register_forward_pre_hook(put, with_kwargs=True)
        try:
            rows = self.subject.rows(self.subject.content(ids), states=False)
        finally:
            hook.remove()
        return torch.log_softmax(rows["logits"][0].float(), -1)


@memo
def _rests(subject: Subject) -> dict[int, Rest | None]:
    return {}


def _rest_of(subject: Subject, target: Target) -> Rest | None:
    """None where the blocks behind the target take more from the ids than its states."""
    rest, ids = Rest(subject, target.depth), torch.arange(3, device=subject.device)[None] * 5 + 3
    ids = subject.content(ids)
    try:
        own = rest(target.output(subject, ids)[0])
        usual = subject.rows(ids, states=False)["logits"][0].float().log_softmax(-1)
    except (Missing, LookupError, RuntimeError, TypeError, ValueError, AttributeError) as error:
        pass_on(error)
        return None
    return rest if bool((relative(own, usual) <= accepted(subject)).all()) else None


@memo
def _heads(subject: Subject) -> list[Head | None]:
    return []


def own_distribution(subject: Subject, target: Target) -> Callable[[Tensor], Tensor] | None:
    """The model's distribution of the next token by the target's states; None if they do not give
    it, as keys and values.
    """
    if target.through == "logits":
        return lambda logits: torch.log_softmax(logits.float(), -1)
    head: Any = output_embedding(subject)
    if head is None or target.through not in ("block", "norm"):
        return None
    if target.depth < subject.layers:
        rests = _rests(subject)
        if target.depth not in rests:
            rests[target.depth] = _rest_of(subject, target)
        return rests[target.depth]
    if target.through == "norm":
        return Head(None, head)
    if not (kept := _heads(subject)):
        kept.append(_found(subject, head))
    return kept[0]


def _found(subject: Subject, head: nn.Module) -> Head | None:
    """The module that a pass runs between the last block and the output embedding."""
    calls: list[tuple[nn.Module, Any, Any]] = []
    hooks = [
        module.register_forward_hook(
            lambda module, inputs, out: calls.append((module, inputs, out))
        )
        for module in subject.model.modules()
        if not list(module.children())
    ]
    last: list[Tensor] = []
    hooks.append(
        subject.blocks[-1].register_forward_hook(
            lambda module, inputs, out: last.append(out[0] if isinstance(out, tuple) else out)
        )
    )
    try:
        subject.rows(subject.content(torch.arange(3, device=subject.device)[None]), states=False)
    finally:
        for hook in hooks:
            hook.remove()
    ends = [inputs[0] for module, inputs, _ in calls if module is head and inputs]
    if len(last) != 1 or len(ends) != 1:
        return None
    for module, inputs, out in calls:
        if inputs and inputs[0] is last[0] and torch.is_tensor(out) and _same(out, ends[0]):
            return Head(module, head)
    return Head(None, head) if _same(last[0], ends[0]) else None


def _same(states: Tensor, others: Tensor) -> bool:
    return states.shape[-1] == others.shape[-1] and torch.equal(
        states[:, -others.shape[1] :], others
    )
