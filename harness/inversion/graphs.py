"""CUDA graphs: of passes over few prompts, which launching their operations slows down most.

A graph repeats recorded operations on the same weights, for other ids.  Before it is used, its
output is compared with that of a plain pass.  It is recorded again after weights have moved.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor, nn

from assay.harness.inversion.candidates import accepted
from assay.harness.inversion.target import Target
from assay.harness.models.machine import memory
from assay.harness.models.machine.shortage import pass_on
from assay.harness.models.reference.tolerances import distance
from assay.harness.models.subject import Subject
from assay.harness.models.subject.memo import memo

USES = 3
"""Plain passes of one shape, the last of which is recorded."""

MOST_TOKENS = 4096
"""Tokens of the largest recorded pass; larger ones spend their time on arithmetic."""

KEPT = 8
"""The most graphs per model."""


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


@dataclass
class _Graph:
    """A recorded pass: ``replay`` computes ``states`` [k, n, F] for ``ids`` [k, n]."""

    ids: Tensor
    states: Tensor
    replay: Callable[[], None]
    weights: tuple[int, ...]

    def __call__(self, ids: Tensor) -> Tensor:
        self.ids.copy_(ids)
        self.replay()
        return self.states.clone()


class Passes:
    """Passes of one subject; ``failed``: they cannot be recorded."""

    def __init__(self, subject: Subject) -> None:
        self.subject, self.failed = subject, False
        self._uses: Counter[Hashable] = Counter()
        self._kept: OrderedDict[Hashable, _Graph] = OrderedDict()

    def __deepcopy__(self, memo: dict[int, object]) -> Passes:
        """A copied model has other weights."""
        return Passes(self.subject)

    def output(self, target: Target, ids: Tensor) -> Tensor:
        """The target's output for ``ids`` [k, n], by a graph if there is one for this shape."""
        if self.failed or not self._fit(ids):
            return target.output(self.subject, ids)
        key = self._key(target, ids)
        graph = self._kept.get(key)
        if graph is not None and graph.weights == self._weights():
            self._kept.move_to_end(key)
            return graph(ids)
        states = target.output(self.subject, ids)
        self._uses[key] += 1
        if self._uses[key] >= USES:
            self._record(key, target, ids, states)
        return states

    def _fit(self, ids: Tensor) -> bool:
        """Whether a pass over ``ids`` may be recorded: on CUDA, and no clock counts passes."""
        subject = self.subject
        return (
            subject.device.type == "cuda"
            and ids.numel() <= MOST_TOKENS
            and not subject.clocks
            and subject.injected is None
        )

    def _key(self, target: Target, ids: Tensor) -> Hashable:
        """Everything that decides which operations a pass consists of."""
        model, precision = self.subject.model, torch.get_float32_matmul_precision()
        return target, tuple(ids.shape), precision, self.subject.attention, model.training

    def _weights(self) -> tuple[int, ...]:
        """The addresses of the weights, from which a graph reads."""
        return tuple(_pointers(self.subject.model))

    def _record(self, key: Hashable, target: Target, ids: Tensor, states: Tensor) -> None:
        """Record a pass over ``ids``, which gave ``states``; compare the graph with two passes."""
        fixed = ids.clone()
        results: list[Tensor] = []

        def run() -> None:
            results[:] = [target.output(self.subject, fixed)]

        try:
            replay = graph_of(self.subject.device, run)
        except (RuntimeError, NotImplementedError) as error:  # code that reads numbers, say
            if not memory.lacking(error):
                pass_on(error)
            self.failed = True
            return
        graph = _Graph(fixed, results[0], replay, self._weights())
        other = ids.roll(1, 0).flip(1)
        pairs = (states, graph(ids)), (target.output(self.subject, other), graph(other))
        close = accepted(self.subject)
        self.failed = not all(bool((distance(*pair) <= close).all()) for pair in pairs)
        if not self.failed:
            self._kept[key] = graph
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)


def _pointers(module: nn.Module) -> Iterator[int]:
    """The addresses of parameters and buffers; faster than `nn.Module.parameters`."""
    for tensor in chain(module._parameters.values(), module._buffers.values()):
        if tensor is not None:
            yield tensor.data_ptr()
    for child in module._modules.values():
        if child is not None:
            yield from _pointers(child)


@memo
def passes(subject: Subject) -> Passes:
    """The `Passes` of a subject, made once."""
    return Passes(subject)
