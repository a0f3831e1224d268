"""Records how an MoE model routes each token, with the scores that decide it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from assay.harness.models.core import Core


@contextmanager
def listening(subject: Core) -> Iterator[list[Tensor]]:
    """The scores [batch × n, experts] of every routing layer, after a pass in the block.

    The body returns them: the whole model would add a balancing loss that does not take 4-D
    masks.  Empty where nothing is routed.
    """
    scores: list[Tensor] = []
    if not subject.routes:
        yield scores
        return
    body = _body(subject.model)

    def ask(
        module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return args, {**kwargs, "output_router_logits": True}

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


def gap(scores: list[Tensor], top_k: int, batch: int, ahead: bool) -> Tensor:
    """How clearly the ``top_k`` experts are chosen for each row and the rows it attends to.

    [batch, n, 1]: the smallest gap in probability between the last chosen expert and the next one,
    over layers and the rows up to it (``ahead``: over all rows).
    """
    gaps = []
    for layer in scores:
        best = layer.double().softmax(-1).sort(-1, descending=True).values
        if best.shape[-1] > top_k:
            gaps.append((best[:, top_k - 1] - best[:, top_k]).reshape(batch, -1, 1))
    own = torch.stack(gaps).amin(0) if gaps else torch.ones(batch, 1, 1)
    smallest = own.min(1, keepdim=True).values.expand_as(own) if ahead else own
    return smallest.cummin(dim=1).values
