"""Runs a descent's step as written, replayed, compiled, or as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from assay.harness.models.subject import Subject
from assay.harness.operations.choices import check_choice
from assay.harness.operations.inversion.target import Output, Target, output_embedding, slipped
from assay.harness.results.errors import BadInput

RUNNERS = ("eager", "replay", "compiled", "graph")
"""``replay`` runs the operations of a step without the Python between them
(`harness.operations.inversion.replay`); ``compiled`` by `torch.compile`, after which steps are
faster that many have to follow; ``graph`` records a step once and replays it (CUDA)."""


def choose_runner(runner: str, device: torch.device) -> str:
    """The ``runner`` asked for, by default the one that costs little to set up.

    Raises `BadInput` where there is no such runner.
    """
    on_card = device.type == "cuda"
    if runner:
        check_choice("runner", runner, RUNNERS)
    if runner == "graph" and not on_card:
        raise BadInput(f"runner graph: needs CUDA, and the model is on {device}")
    return runner or ("graph" if on_card else "replay")


@contextmanager
def compile_output(
    subject: Subject, target: Output, n: int
) -> Iterator[Callable[[Tensor], Tensor]]:
    """The target's output for embeddings [rows, n, d], compiled at the first call for its shape.

    What lies past the target is traced too and thrown away: `Target.output` leaves the forward
    pass by an exception, which cannot be compiled.
    """
    if subject.is_encoder_decoder:
        raise BadInput(f"runner compiled: {subject.name} has an encoder; its decoder runs eagerly")
    if not isinstance(target, Target):
        yield torch.compile(lambda x: target.output(subject, embeddings=x), dynamic=False)
        return
    head = output_embedding(subject)
    given = _given(subject, target, n)
    taken: list[Tensor] = []

    def after(module: nn.Module, given: tuple[Any, ...], result: Any) -> None:
        taken.append(result[0] if isinstance(result, tuple | list) else result)

    def before(module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        taken.append(given[0] if given else named["hidden_states"])

    def output(x: Tensor) -> Tensor:
        taken.clear()
        whole = subject.model(inputs_embeds=x, return_dict=True, **given)
        if target.through == "logits":
            taken.clear()
            logits: Tensor = whole["logits"]
            return logits
        state = taken[max(0, target.depth - 1) if target.through != "norm" else 0]
        taken.clear()  # or all of them are outputs of the graph, and their blocks run
        return state if target.through != "head" or head is None else head(state)

    hooks: list[Any] = []
    if target.through == "norm" and head is not None:
        hooks = [head.register_forward_pre_hook(before, with_kwargs=True)]
    elif target.through != "logits" and target.depth == 0:
        hooks = [subject.blocks[0].register_forward_pre_hook(before, with_kwargs=True)]
    elif target.through != "logits":
        hooks = [block.register_forward_hook(after) for block in subject.blocks]
    try:
        yield torch.compile(output, dynamic=False)
    finally:
        taken.clear()
        for hook in hooks:
            hook.remove()


def _given(subject: Subject, target: Target, n: int) -> dict[str, Any]:
    """What the model is given beside embeddings."""
    given: dict[str, Any] = {}
    if subject.cache_argument is not None:
        given["use_cache"] = False
    if target.slip:
        extra = slipped(subject, n)
        given |= {"position_ids": extra["positions"][None], "attention_mask": extra["mask"]}
    return given
