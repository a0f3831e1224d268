"""Runs a descent's step as written, replayed, compiled, or as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from assay.harness.inversion.target import Output, Target, output_embedding, slipped
from assay.harness.models.subject import Subject
from assay.harness.models.subject.roles import Role
from assay.harness.operations.choices import check_choice
from assay.harness.results.errors import BadInput

RUNNERS = ("eager", "replay", "compiled", "graph")
"""``replay`` runs the operations of a step without the Python between them
(`harness.inversion.replay`); ``compiled`` uses `torch.compile`, which pays off after
many steps; ``graph`` records a step once and replays it (CUDA)."""


def choose_runner(runner: str, device: torch.device) -> str:
    """The requested ``runner``, by default one with little set-up cost.

    Raises `BadInput` for an unknown or unavailable runner.
    """
    on_card = device.type == "cuda"
    if runner:
        check_choice("runner", runner, RUNNERS)
    if runner == "graph" and not on_card:
        raise BadInput(f"runner graph: needs CUDA, and the model is on {device}")
    return runner or ("graph" if on_card else "replay")


def graph_of(device: torch.device, run: Callable[[], None], warm: int = 3) -> Callable[[], None]:
    """A function that repeats the operations of ``run``, recorded once as a CUDA graph.

    ``run`` is called ``warm`` times before, and once more to be recorded, which computes nothing.
    """
    with torch.cuda.device(device):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(warm):
                run()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
    replay: Callable[[], None] = graph.replay
    return replay


@contextmanager
def compile_output(
    subject: Subject, target: Output, n: int
) -> Iterator[Callable[[Tensor], Tensor]]:
    """The target's output for embeddings [rows, n, d], compiled at the first call for its shape.

    Operations after the target are also traced and dropped: `Target.output` leaves the forward
    pass by an exception, which cannot be compiled.
    """
    if subject.is_encoder_decoder:
        raise BadInput(f"runner compiled: {subject.name} has an encoder; its decoder runs eagerly")
    if not isinstance(target, Target):
        yield torch.compile(lambda x: target.output(subject, embeddings=x), dynamic=False)
        return
    head = output_embedding(subject)
    options = _model_options(subject, target, n)
    embeddings, named_output = subject.bound[Role.EMBEDDINGS], subject.bound[Role.NAMED_OUTPUT]
    states: list[Tensor] = []

    def after(module: nn.Module, args: tuple[Any, ...], result: Any) -> None:
        states.append(result[0] if isinstance(result, tuple | list) else result)

    def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        states.append(args[0] if args else kwargs["hidden_states"])

    def output(x: Tensor) -> Tensor:
        states.clear()
        whole = subject.model(**{embeddings: x, named_output: True}, **options)
        if target.through == "logits":
            states.clear()
            logits: Tensor = whole["logits"]
            return logits
        state = states[max(0, target.depth - 1) if target.through != "norm" else 0]
        states.clear()  # else all of them are outputs of the graph, and their blocks run
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
        states.clear()
        for hook in hooks:
            hook.remove()


def _model_options(subject: Subject, target: Target, n: int) -> dict[str, Any]:
    """The model's arguments besides embeddings."""
    options: dict[str, Any] = {}
    if subject.cache_argument is not None:
        options[Role.KEEP] = False
    if target.slip:
        extra = slipped(subject, n)
        options |= {Role.POSITIONS: extra["positions"][None], Role.MASK: extra["mask"]}
    return subject.bound.named(options)
