"""GPUs that are not there: streams and graphs, for tests of code that needs CUDA.

Within `installed` every tensor says that it lies on a GPU, and is computed by the processor.  What
CUDA does not allow raises, as it does there; what is only wrong is kept in `Gpus.mistakes`.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

READING = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "_unique2", "is_nonzero"}
"""Operations of which the host needs a result."""


class Gpus:
    """Fake GPUs, on the last of which all tensors lie (``place``); ``calls`` in their order."""

    def __init__(self, count: int = 2, memory: int = 80 * 10**9) -> None:
        self.count, self.memory = count, memory
        self.place = torch.device("cuda", count - 1)
        self.calls: list[str] = []
        self.mistakes: list[str] = []
        self.chosen = 0
        self.recording: Graph | None = None
        self.streams: list[Stream] = []
        self.made: list[Stream] = []

    def work(self) -> None:
        """Queue an operation in the current stream."""
        current = self.streams[-1]
        current.queued[current] += 1
        if any(current.queued[other] < other.queued[other] for other in self.made):
            self.mistakes.append("a stream does not wait for another's work")

    def wait(self, what: str) -> None:
        """Refuse that the host waits while a graph is recorded."""
        if self.recording is not None:
            raise RuntimeError(f"CUDA error: the stream is capturing a graph ({what})")

    def synchronize(self, device: Any = None) -> None:
        index = self.chosen if device is None else torch.device(device).index or 0
        self.wait("synchronize")
        self.calls.append(f"synchronize cuda:{index}")

    @contextlib.contextmanager
    def choose(self, device: Any) -> Iterator[None]:
        before, self.chosen = self.chosen, torch.device(device).index or 0
        try:
            yield
        finally:
            self.chosen = before

    def names(self) -> dict[str, Any]:
        """What stands in place of the names of `torch.cuda` and `torch.accelerator`."""
        about = SimpleNamespace(uuid="0", L2_cache_size=50 * 2**20)
        return {
            "is_available": lambda: self.count > 0,
            "current_accelerator": lambda: torch.device("cuda"),
            "device_count": lambda: self.count,
            "synchronize": self.synchronize,
            "empty_cache": lambda: self.calls.append("empty the cache"),
            "current_device": lambda: self.chosen,
            "device": self.choose,
            "is_current_stream_capturing": lambda: self.recording is not None,
            "get_device_name": lambda device=None: "fake GPU",
            "get_device_properties": lambda device=None: about,
            "mem_get_info": lambda device=None: (self.memory, self.memory),
            **dict.fromkeys(("memory_reserved", "memory_allocated"), lambda device=None: 0),
            **{"Stream": Stream, "CUDAGraph": Graph},
            "current_stream": lambda device=None: self.streams[-1],
            "stream": lambda stream: stream,
            "graph": lambda graph: graph.capture(),
        }


here = Gpus()
"""The GPUs that are installed now."""


class Stream:
    """A queue of a GPU: ``queued`` is how much of each stream's work comes before what follows."""

    def __init__(self) -> None:
        self.queued: Counter[Stream] = Counter()
        here.made.append(self)

    def wait_stream(self, other: Stream) -> None:
        self.queued |= other.queued

    def __enter__(self) -> None:
        here.streams.append(self)

    def __exit__(self, *error: object) -> None:
        here.streams.pop()


class Graph:
    """A recorded graph: operations of the dispatcher, in their order."""

    def __init__(self) -> None:
        self.operations: list[tuple[Any, Any, Any, Any]] = []
        self.before: dict[int, tuple[Tensor, Tensor]] = {}

    @contextlib.contextmanager
    def capture(self) -> Iterator[None]:
        """Record what the block does; what it changed in place is put back, as nothing ran."""
        if here.chosen != here.place.index:
            here.mistakes.append("a graph is recorded on another GPU")
        here.calls.append("capture")
        here.recording = self
        try:
            yield
        finally:
            here.recording = None
            with torch.no_grad(), torch._C.DisableTorchFunction():
                for tensor, value in self.before.values():
                    tensor.copy_(value)

    def record(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operation and keep it, with what it changes in place."""
        for argument, value in zip(func._schema.arguments, args, strict=False):
            if argument.alias_info is not None and argument.alias_info.is_write:
                for tensor in _tensors(value):
                    before = tensor, tensor.detach().clone()
                    self.before.setdefault(tensor.untyped_storage().data_ptr(), before)
        self.operations.append((func, args, kwargs, results := func(*args, **kwargs)))
        return results

    def replay(self) -> None:
        """Run the operations again, on the same buffers."""
        here.calls.append("replay")
        with torch.no_grad(), torch._C.DisableTorchFunction():
            for func, args, kwargs, results in self.operations:
                again = func(*args, **kwargs)
                given = {t.untyped_storage().data_ptr() for t in _tensors((args, kwargs))}
                for old, new in zip(_tensors(results), _tensors(again), strict=True):
                    if old.untyped_storage().data_ptr() not in given:
                        old.detach().copy_(new)


def _tensors(values: Any) -> Iterator[Tensor]:
    return (each for each in tree_leaves(values) if isinstance(each, Tensor))


class _Queue(TorchDispatchMode):
    """Queues, or records, every operation."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = func._schema.name.partition("::")[2], kwargs or {}
        masked = name == "index" and any(t.dtype == torch.bool for t in _tensors(args[1]))
        if masked or name in READING:
            here.wait(f"the host reads by {name}")
        with torch._C.DisableTorchFunction():
            if here.recording is not None:
                return here.recording.record(func, args, kwargs)
            here.work()
            return func(*args, **kwargs)


class _Devices(TorchFunctionMode):
    """Tensors say that they lie on the GPU; functions that are given a device get the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        owner, kwargs = getattr(func, "__self__", None), dict(kwargs or {})
        if owner is Tensor.device:
            return here.place
        if owner in (Tensor.is_cuda, Tensor.is_cpu):
            return owner is Tensor.is_cuda
        if func in (Tensor.cpu, Tensor.tolist, Tensor.numpy):
            here.wait(f"the host reads by {func.__name__}")
        if func is Tensor.to:
            args = tuple("cpu" if isinstance(x, str | torch.device) else x for x in args)
        if kwargs.get("device") is not None:
            kwargs["device"] = "cpu"
        return func(*args, **kwargs)


@contextlib.contextmanager
def installed(gpus: Gpus) -> Iterator[Gpus]:
    """Within the block, this machine has the ``gpus``."""
    global here
    here = gpus
    gpus.streams = [Stream()]
    with pytest.MonkeyPatch.context() as patch, _Devices(), _Queue():
        for name, value in gpus.names().items():
            for module in (torch.cuda, torch.accelerator):
                patch.setattr(module, name, value, raising=False)
        yield gpus
