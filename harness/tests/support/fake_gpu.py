"""GPUs that are not there: events, streams, graphs, memory and time, with every call recorded.

`installed` replaces what torch offers for CUDA.  Operations on tensors of a fake GPU take time on
its own clock, while the host's stands still until it waits; a graph holds the operations that were
recorded, and a replay runs them again on the same buffers.  What CUDA does not allow raises, as it
does there; what is only wrong (a time that is read while the GPU works, a clock that is read while
a graph is recorded) is kept in `Gpus.mistakes`, and `Gpus.check` raises it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from assay.harness.tests.support import gpu_tensors
from assay.harness.tests.support.gpu_tensors import Devices, numbered, tensors

OPERATION = 1e-3
"""Seconds of every operation on a fake GPU."""

CALL = 1e-5
"""Seconds that the host takes to queue one."""

READING = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "_unique2", "is_nonzero"}
"""Operations of which the host needs a result."""


class NotWhileCapturing(RuntimeError):
    """As CUDA's error for what would wait for a stream that records a graph."""

    def __init__(self, what: str) -> None:
        super().__init__(f"CUDA error: operation not permitted when stream is capturing ({what})")


class Mistake(AssertionError):
    """A use of a GPU that raises nothing there, and is wrong."""


class Gpus(gpu_tensors.Watch):
    """Fake GPUs: ``calls`` in their order, and ``mistakes``; ``now`` is the host's clock."""

    def __init__(self, count: int = 2, memory: int = 80 * 10**9, kind: str = "fake GPU") -> None:
        self.count, self.memory, self.kind = count, memory, kind
        self.calls: list[str] = []
        self.mistakes: list[str] = []
        self.host = 0.0
        self.done = [0.0] * count
        self.used = [0] * count
        self.chosen = 0
        self.recording: Graph | None = None
        self.vanished = False

    def index(self) -> int:
        """The current GPU."""
        return self.chosen

    def now(self) -> float:
        """The host's clock; to read it in a recording, or while a GPU works, is a mistake."""
        if self.recording is not None:
            self.mistakes.append("the clock was read while a graph is recorded")
        elif any(done > self.host for done in self.done):
            self.mistakes.append("the clock was read while the GPU works: a missing synchronise")
        return self.host

    def check(self) -> None:
        """Raise the first mistake."""
        if self.mistakes:
            raise Mistake(self.mistakes[0])

    def ran(self, func: Any, place: torch.device) -> None:
        """Queue an operation."""
        if self.vanished:
            raise RuntimeError("CUDA error: device unavailable; the GPU has fallen off the bus")
        if self.recording is None:
            self.work(place.index or 0)

    def work(self, index: int, seconds: float = OPERATION) -> None:
        """Queue so much work."""
        self.host += CALL
        self.done[index] = max(self.done[index], self.host) + seconds

    def read(self, func: Any, place: torch.device) -> None:
        """Wait for the GPU, to give the host a number."""
        name = getattr(func, "__name__", str(func))
        if self.recording is not None:
            raise NotWhileCapturing(f"the host reads by {name}")
        self.host = max(self.host, self.done[place.index or 0])

    def synchronize(self, device: Any = None) -> None:
        """Wait for a GPU."""
        if self.recording is not None:
            raise NotWhileCapturing("synchronize")
        index = self._index(device)
        self.calls.append(f"synchronize cuda:{index}")
        self.host = max(self.host, self.done[index])

    def _index(self, device: Any) -> int:
        device = self.chosen if device is None else device
        index = numbered(device).index or 0
        if index >= self.count:
            raise RuntimeError("CUDA error: invalid device ordinal")
        return index

    def patches(self) -> dict[str, Any]:
        """What stands in place of the names of `torch.cuda`."""

        def choosing(device: Any) -> Any:
            return _chosen(self, self._index(device))

        return {
            "is_available": lambda: self.count > 0,
            "device_count": lambda: self.count,
            "current_device": lambda: self.chosen,
            "init": lambda: None,
            "device": choosing,
            "synchronize": self.synchronize,
            "is_current_stream_capturing": lambda: self.recording is not None,
            "get_device_name": lambda device=None: self.kind,
            "get_device_properties": lambda device=None: SimpleNamespace(
                name=self.kind, uuid="0", L2_cache_size=50 * 2**20, total_memory=self.memory
            ),
            "mem_get_info": lambda device=None: (
                self.memory - self.used[self._index(device)],
                self.memory,
            ),
            "memory_reserved": lambda device=None: 0,
            "memory_allocated": lambda device=None: 0,
            "max_memory_allocated": lambda device=None: self.used[self._index(device)],
            "reset_peak_memory_stats": lambda device=None: self.calls.append("forget the peak"),
            "empty_cache": lambda: self.calls.append("empty the cache"),
            "Event": _class_of(self, Event),
            "Stream": _class_of(self, Stream),
            "current_stream": lambda device=None: Stream(self),
            "default_stream": lambda device=None: Stream(self),
            "stream": lambda stream: contextlib.nullcontext(),
            "CUDAGraph": _class_of(self, Graph),
            "graph": lambda graph, **_: graph.capture(),
            "get_rng_state": lambda device=None: torch.zeros(16, dtype=torch.uint8),
            "set_rng_state": lambda state, device=None: None,
            "manual_seed": lambda seed: None,
            "manual_seed_all": lambda seed: None,
        }

    def general(self) -> dict[str, Any]:
        """What stands in place of the names of `torch.accelerator`."""
        return {
            "is_available": lambda: self.count > 0,
            "current_accelerator": lambda *_, **__: torch.device("cuda"),
            "device_count": lambda: self.count,
            "synchronize": self.synchronize,
            "empty_cache": lambda: self.calls.append("empty the cache"),
        }


def _class_of(gpus: Gpus, kind: type) -> type:
    """A class whose objects belong to the GPUs: libraries name such classes as types."""

    def __init__(self: Any, *arguments: Any, **settings: Any) -> None:  # noqa: N807 - of the class
        kind.__init__(self, gpus, *arguments, **settings)  # type: ignore[misc]

    return type(kind.__name__, (kind,), {"__init__": __init__})


@contextlib.contextmanager
def _chosen(gpus: Gpus, index: int) -> Iterator[None]:
    before, gpus.chosen = gpus.chosen, index
    try:
        yield
    finally:
        gpus.chosen = before


class Event:
    """A mark in a GPU's queue."""

    def __init__(self, gpus: Gpus, enable_timing: bool = False, **_: Any) -> None:
        self.gpus, self.timed, self.at = gpus, enable_timing, -1.0

    def record(self, stream: Any = None) -> None:
        """Set the mark behind what is queued."""
        self.index = self.gpus.chosen
        self.at = max(self.gpus.done[self.index], self.gpus.host)
        self.gpus.calls.append("record an event")

    def synchronize(self) -> None:
        """Wait for the mark."""
        if self.gpus.recording is not None:
            raise NotWhileCapturing("Event.synchronize")
        self.gpus.host = max(self.gpus.host, self.at)

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds from this mark to another, which has to be reached."""
        if not (self.timed and end.timed):
            raise RuntimeError("Both events must be created with argument 'enable_timing=True'.")
        if end.at > self.gpus.host:
            raise RuntimeError("CUDA error: device not ready")
        return 1e3 * (end.at - self.at)


class Stream:
    """A queue of a GPU; all of them are one here."""

    def __init__(self, gpus: Gpus, device: Any = None) -> None:
        self.gpus = gpus

    def wait_stream(self, other: Stream) -> None:
        """Wait, on the GPU, for another queue."""
        self.gpus.calls.append("wait for a stream")

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class Graph:
    """A recorded graph: operations of the dispatcher, in their order."""

    def __init__(self, gpus: Gpus) -> None:
        self.gpus = gpus
        self.operations: list[tuple[Any, Any, Any, Any]] = []
        self.index = 0

    @contextlib.contextmanager
    def capture(self) -> Iterator[None]:
        """Record what the block does; what it changed in place is put back, as nothing ran."""
        if self.gpus.recording is not None:
            raise NotWhileCapturing("a second graph")
        self.gpus.calls.append("capture")
        self.index = self.gpus.chosen
        self.gpus.recording, before = self, dict[int, tuple[Tensor, Tensor]]()
        try:
            with _Recorder(self, before):
                yield
        finally:
            self.gpus.recording = None
            with torch.no_grad(), torch._C.DisableTorchFunction():
                for tensor, value in before.values():
                    tensor.copy_(value)

    def replay(self) -> None:
        """Run the operations again, on the same buffers."""
        self.gpus.calls.append("replay")
        with torch.no_grad(), torch._C.DisableTorchFunction():
            for func, args, kwargs, results in self.operations:
                self.gpus.work(self.index)
                again = func(*args, **kwargs)
                given = {t.untyped_storage().data_ptr() for t in tensors((args, kwargs))}
                for old, new in zip(tensors(results), tensors(again), strict=True):
                    if old.untyped_storage().data_ptr() not in given:
                        old.detach().copy_(new)


class _Recorder(TorchDispatchMode):
    """Notes operations for a graph, and what they change in place."""

    def __init__(self, graph: Graph, before: dict[int, tuple[Tensor, Tensor]]) -> None:
        super().__init__()
        self.graph, self.before = graph, before

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.partition("::")[2]
        if name in READING:
            raise NotWhileCapturing(f"the host reads by {name}")
        if name == "index" and any(t.dtype in (torch.bool, torch.uint8) for t in tensors(args[1])):
            raise NotWhileCapturing("the host reads how many rows a mask selects")
        with torch._C.DisableTorchFunction():
            for argument, value in zip(func._schema.arguments, args, strict=False):
                if argument.alias_info is not None and argument.alias_info.is_write:
                    for tensor in tensors(value):
                        kept = tensor, tensor.detach().clone()
                        self.before.setdefault(tensor.untyped_storage().data_ptr(), kept)
            results = func(*args, **kwargs)
        self.graph.operations.append((func, args, kwargs, results))
        return results


@contextlib.contextmanager
def installed(gpus: Gpus) -> Iterator[Gpus]:
    """Within the block, this machine has the ``gpus``."""
    with pytest.MonkeyPatch.context() as patch, Devices():
        for name, value in gpus.patches().items():
            patch.setattr(torch.cuda, name, value, raising=False)
        patch.setattr(gpu_tensors, "watch", gpus)
        if not hasattr(torch, "accelerator"):  # torch 2.5
            patch.setattr(torch, "accelerator", SimpleNamespace(), raising=False)
        for name, value in gpus.general().items():
            patch.setattr(torch.accelerator, name, value, raising=False)
        patch.setattr(torch, "Generator", _Generator)
        patch.setattr(torch, "Stream", _class_of(gpus, Stream))
        patch.setattr(torch, "Event", _class_of(gpus, Event))
        yield gpus


class _Generator(torch.Generator):
    """A generator of any device, which draws on the processor."""

    def __new__(cls, device: Any = "cpu") -> Any:
        return super().__new__(cls, device="cpu")


def timed(gpus: Gpus, work: Callable[[], object]) -> float:
    """Seconds that a GPU is busy with ``work``, from rest to rest."""
    gpus.host = begun = max(gpus.host, *gpus.done)
    work()
    return max(gpus.done) - begun
