"""Passes over few prompts as CUDA graphs: as written, most of their time is that of launching.

A graph computes what was recorded: the same operations on the same weights, of other ids.  It is
compared with the pass as written before it is used, and recorded again where weights have moved.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor, nn

from assay.harness.models import memory
from assay.harness.models.memo import memo
from assay.harness.models.shortage import pass_on
from assay.harness.models.subject import Subject
from assay.harness.models.tolerances import distance
from assay.harness.operations.inversion import running
from assay.harness.operations.inversion.candidates import accepted
from assay.harness.operations.inversion.target import Target

USES = 3
"""Passes over as many prompts of one length, after which one is recorded."""

MOST_TOKENS = 4096
"""Tokens of a pass beyond which arithmetic takes its time."""

KEPT = 8
"""Graphs of a model that are kept."""


@dataclass
class _Recording:
    """A pass: ``replay`` computes ``states`` [k, n, F] of the prompts in ``ids`` [k, n]."""

    ids: Tensor
    states: Tensor
    replay: Callable[[], None]
    weights: tuple[int, ...]

    def __call__(self, ids: Tensor) -> Tensor:
        self.ids.copy_(ids)
        self.replay()
        return self.states.clone()


class Passes:
    """The passes of one subject; ``failed`` says that its passes cannot be recorded."""

    def __init__(self, subject: Subject) -> None:
        self.subject, self.failed = subject, False
        self._uses: Counter[Hashable] = Counter()
        self._kept: OrderedDict[Hashable, _Recording] = OrderedDict()

    def __deepcopy__(self, memo: dict[int, object]) -> Passes:
        """A copied model has other weights."""
        return Passes(self.subject)

    def output(self, target: Target, ids: Tensor) -> Tensor:
        """The target's output for ``ids`` [k, n], as a graph where that has been recorded."""
        if self.failed or not self._fit(ids):
            return target.output(self.subject, ids)
        key = self._key(target, ids)
        recording = self._kept.get(key)
        if recording is not None and recording.weights == self._weights():
            self._kept.move_to_end(key)
            return recording(ids)
        states = target.output(self.subject, ids)
        self._uses[key] += 1
        if self._uses[key] >= USES:
            self._record(key, target, ids, states)
        return states

    def _fit(self, ids: Tensor) -> bool:
        """Whether a pass over ``ids`` may be a graph: on CUDA, and nobody watches passes."""
        subject = self.subject
        return (
            subject.device.type == "cuda"
            and ids.numel() <= MOST_TOKENS
            and not subject.clocks
            and subject.injected is None
        )

    def _key(self, target: Target, ids: Tensor) -> Hashable:
        """What decides which operations a pass has."""
        model, precision = self.subject.model, torch.get_float32_matmul_precision()
        return target, tuple(ids.shape), precision, self.subject.attention, model.training

    def _weights(self) -> tuple[int, ...]:
        """Where the weights are: a graph reads them there."""
        return tuple(_pointers(self.subject.model))

    def _record(self, key: Hashable, target: Target, ids: Tensor, states: Tensor) -> None:
        """Record the pass over ``ids``, whose ``states`` are known; compare it at others."""
        fixed = ids.clone()
        results: list[Tensor] = []

        def run() -> None:
            results[:] = [target.output(self.subject, fixed)]

        try:
            replay = running.graph_of(self.subject.device, run)
        except (RuntimeError, NotImplementedError) as error:  # code that reads numbers, say
            if not memory.lacking(error):
                pass_on(error)
            self.failed = True
            return
        recording = _Recording(fixed, results[0], replay, self._weights())
        other = ids.roll(1, 0).flip(1)
        pairs = (states, recording(ids)), (target.output(self.subject, other), recording(other))
        close = accepted(self.subject)
        self.failed = not all(bool((distance(*pair) <= close).all()) for pair in pairs)
        if not self.failed:
            self._kept[key] = recording
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)


def _pointers(module: nn.Module) -> Iterator[int]:
    """The addresses of all parameters and buffers, sooner than `nn.Module.parameters` has them."""
    for tensor in chain(module._parameters.values(), module._buffers.values()):
        if tensor is not None:
            yield tensor.data_ptr()
    for child in module._modules.values():
        if child is not None:
            yield from _pointers(child)


@memo
def passes(subject: Subject) -> Passes:
    """The passes of a subject, recorded once."""
    return Passes(subject)
