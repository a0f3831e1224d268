"""Records how an MoE model routes each token, with the scores that decide it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedModel

from assay.harness.models.subject import selection
from assay.harness.models.subject.roles import Role

if TYPE_CHECKING:
    from assay.harness.models.subject import Subject

_LARGEST = {torch.topk, Tensor.topk}
_FIRST = {torch.argmax, Tensor.argmax}


@contextmanager
def listening(subject: Subject) -> Iterator[list[Tensor]]:
    """The scores [batch × n, experts] of every routing layer, after a pass in the block.

    The body returns them: the whole model would add a balancing loss that does not take 4-D
    masks.  Empty where nothing is routed.
    """
    scores: list[Tensor] = []
    if not (subject.settings.listens and selection.routes(subject)):
        yield scores
        return
    body = _body(subject.model)

    def ask(
        module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return args, {**kwargs, subject.bound[Role.ROUTER_LOGITS]: True}

    def hear(module: nn.Module, args: tuple[Any, ...], result: Any) -> None:
        scores.extend(result.get("router_logits") or ())

    hooks = [
        body.register_forward_pre_hook(ask, with_kwargs=True),
        body.register_forward_hook(hear),
    ]
    try:
        yield scores
    finally:
        for hook in hooks:
            hook.remove()


def _body(model: PreTrainedModel) -> nn.Module:
    """The model below its head, whether or not it has the name that the model declares."""
    if model.base_model is not model:
        return model.base_model
    parts = (part for part in model.children() if isinstance(part, PreTrainedModel))
    return next(parts, model)


@contextmanager
def choosing(subject: Subject) -> Iterator[list[Tensor]]:
    """How clearly each layer chooses among experts, or groups of them, in a pass in the block.

    A list of gaps [rows], one for each choice of the largest scores: in probability between the
    last chosen and the next; scores outside 0 to 1 are taken as logits.  It hears routers that
    return no scores, or choose by other numbers than those.
    """
    choices = _Choices(selection.experts(subject))
    with choices if subject.settings.listens and selection.chooses(subject) else nullcontext():
        yield choices.gaps


class _Choices(TorchFunctionMode):
    """Notes the gaps of all choices of the largest among up to ``most`` numbers."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most
        self.gaps: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _LARGEST:
            self._note(*_arguments(args, kwargs, "input", "k", "dim"))
        elif func in _FIRST:
            scores, dim = _arguments(args, kwargs, "input", "dim")
            self._note(scores, 1, dim)
        return func(*args, **kwargs)

    def _note(self, scores: Tensor, k: int, dim: int | None) -> None:
        last = dim == -1 or dim == scores.ndim - 1
        if not last or scores.ndim < 2 or not k < scores.shape[-1] <= self.most:
            return
        exact = scores.detach().double()
        inside = ((exact >= 0) & (exact <= 1)).all()
        best = torch.where(inside, exact, exact.softmax(-1)).topk(k + 1, dim=-1).values
        gaps = best[..., k - 1] - best[..., k]
        self.gaps.append(gaps.nan_to_num(nan=1.0).flatten())


def _arguments(args: Sequence[Any], kwargs: dict[str, Any], *names: str) -> list[Any]:
    """The arguments ``names`` of a call; the dimension is the last where none is given."""
    arguments = dict(zip(names, args, strict=False)) | kwargs
    return [arguments.get(name, -1 if name == "dim" and "k" in names else None) for name in names]


def gap(
    scores: list[Tensor], top_k: int, batch: int, ahead: bool, choices: Sequence[Tensor] = ()
) -> Tensor:
    """How clearly the ``top_k`` experts are chosen for each row and the rows it attends to.

    [batch, n, 1]: the smallest gap in probability between the last chosen expert and the next one,
    over layers and the rows up to it (``ahead``: over all rows).  ``choices`` are the gaps of more
    choices, each [batch × n].
    """
    gaps = [each.reshape(batch, -1, 1) for each in choices]
    for layer in scores:
        best = layer.double().softmax(-1).sort(-1, descending=True).values
        if best.shape[-1] > top_k:
            gaps.append((best[:, top_k - 1] - best[:, top_k]).reshape(batch, -1, 1))
    own = torch.stack(gaps).amin(0) if gaps else torch.ones(batch, 1, 1)
    smallest = own.min(1, keepdim=True).values.expand_as(own) if ahead else own
    return smallest.cummin(dim=1).values
