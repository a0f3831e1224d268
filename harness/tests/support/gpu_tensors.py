"""Tensors that say they lie on a GPU, and are computed by the processor.

Everything that a test runs on them gives the processor's numbers, and raises where a GPU would:
operands on two devices, an array of numpy made without a copy to the host, a number read while a
graph is recorded.  Their storage is the processor's, so every operation and autograd work.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map

CPU = torch.device("cpu")

MIXED = {
    *(Tensor.copy_, Tensor.__getitem__, Tensor.__setitem__, Tensor.index_put_),
    torch._has_compatible_shallow_copy_type,
}
"""Operations whose operands may lie on two devices: copies, and the processor's indices."""

READS = {
    *(Tensor.item, Tensor.tolist, Tensor.numpy, Tensor.__bool__, Tensor.__int__, Tensor.__float__),
    *(Tensor.__index__, Tensor.equal, torch.equal, Tensor.allclose, torch.allclose),
    *(Tensor.nonzero, torch.nonzero, Tensor.unique, torch.unique, Tensor.__repr__),
    *(Tensor.is_nonzero, Tensor.masked_select, torch.masked_select, Tensor.__contains__),
}
"""Functions that wait for the device, to give the host a number or a shape."""


class OnGpu(Tensor):
    """A tensor on the GPU ``place``; there is a subclass for each GPU."""

    place = torch.device("cuda", 0)

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Compute as the processor does; the results lie where the operands do."""
        return run(func, args, kwargs or {})


class ParameterOnGpu(OnGpu, torch.nn.Parameter):
    """A parameter on a GPU."""

    def __new__(cls, data: Tensor, requires_grad: bool = True) -> Any:
        """As torch makes a parameter of a tensor of a class of its own."""
        return data.detach().as_subclass(cls).requires_grad_(requires_grad)


_classes: dict[tuple[type, torch.device], type] = {}


def class_on(place: torch.device, parameter: bool = False) -> type:
    """The class of tensors, or of parameters, on a GPU."""
    base: type = ParameterOnGpu if parameter else OnGpu
    key = base, torch.device(place.type, place.index or 0)
    if key not in _classes:
        _classes[key] = type(f"{base.__name__}{key[1].index}", (base,), {"place": key[1]})
    return _classes[key]


def place_of(tensor: Tensor) -> torch.device:
    """Where a tensor lies, or says that it does."""
    if isinstance(tensor, OnGpu):
        return type(tensor).place
    with torch._C.DisableTorchFunction():
        return tensor.device


def put(result: Any, place: torch.device) -> Any:
    """``result`` with its tensors on ``place``."""

    def each(value: Any) -> Any:
        if not isinstance(value, Tensor) or isinstance(value, torch.nn.Parameter):
            return value
        kind = Tensor if place.type == "cpu" else class_on(place)
        with torch._C.DisableTorchFunction():
            return value if type(value) is kind else value.as_subclass(kind)

    if isinstance(result, torch.Size | torch.dtype | str | bytes | int | float | bool):
        return result
    return tree_map(each, result)


class Watch:
    """Every function is reported to the fake GPU: see `harness.tests.support.fake_gpu`."""

    def ran(self, func: Any, place: torch.device) -> None:
        """An operation was queued on ``place``."""

    def read(self, func: Any, place: torch.device) -> None:
        """The host read what lies on ``place``."""

    def index(self) -> int:
        """The GPU that ``cuda`` means now."""
        return 0


watch: Watch = Watch()


def run(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """A function of torch on tensors of which some lie on a GPU."""
    with torch._C.DisableTorchFunctionSubclass():
        return _run(func, args, kwargs)


def _run(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    name = getattr(func, "__name__", "")
    flat = [each for each in tree_flatten((args, kwargs))[0] if isinstance(each, Tensor)]
    places = {place_of(t) for t in flat if t.ndim or isinstance(t, OnGpu)}
    gpus = sorted((p for p in places if p.type != "cpu"), key=str)
    here = gpus[0] if gpus else CPU
    if name == "__get__" and (answer := _about(func, args)) is not None:
        return answer[0]
    if func is Tensor.__deepcopy__:
        return _copied(*args)
    if name == "__set__":
        return _set(func, *args)
    if func in (Tensor.to, Tensor.cpu, Tensor.cuda):
        return _moved(func, args, kwargs)
    if func is Tensor.get_device:
        return here.index if here.type != "cpu" else -1
    if func is Tensor.numpy and gpus:
        raise TypeError(f"can't convert {here} device type tensor to numpy; use Tensor.cpu()")
    if len(places) > 1 and func not in MIXED:
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{' and '.join(sorted(map(str, places)))}! ({name})"
        )
    target = here
    if func in (Tensor.copy_, Tensor.__getitem__, Tensor.__setitem__, Tensor.index_put_):
        target = place_of(args[0])
    if (wanted := _device_of(kwargs)) is not None:
        target, kwargs = wanted, {**kwargs, "device": CPU if wanted.type != "meta" else wanted}
    if gpus and func in READS:
        watch.read(func, here)
    result = func(*args, **kwargs)
    if target.type != "meta" and (gpus or target.type != "cpu"):
        watch.ran(func, target)
        result = put(result, target)
    return result


def _device_of(kwargs: dict[str, Any]) -> torch.device | None:
    """The ``device`` that a factory is given, with a number."""
    device = kwargs.get("device")
    return None if device is None else numbered(device)


def numbered(device: Any) -> torch.device:
    """A device with its number."""
    device = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", watch.index())
    return device


def _about(func: Any, args: Any) -> tuple[Any] | None:
    """What a tensor on a GPU says of where it is; None for other attributes."""
    (tensor, *_) = args
    if not isinstance(tensor, OnGpu):
        return None
    owner = getattr(func, "__self__", None)
    if owner is Tensor.device:
        return (type(tensor).place,)
    if owner is Tensor.is_cuda:
        return (True,)
    if owner is Tensor.is_cpu:
        return (False,)
    return None


def _set(func: Any, tensor: Tensor, value: Any) -> None:
    """``tensor.data = value`` moves it, as on a real device; gradients lie where it does."""
    data = getattr(func, "__self__", None) is Tensor.data
    with torch._C.DisableTorchFunction():
        func(tensor, value)
        if not data:
            return
        place = place_of(value)
        parameter = isinstance(tensor, torch.nn.Parameter)
        if place.type == "cpu":
            tensor.__class__ = torch.nn.Parameter if parameter else Tensor
        else:
            tensor.__class__ = class_on(place, parameter)


def _copied(tensor: Tensor, memo: dict[int, Any]) -> Tensor:
    """A deep copy on the same device; torch's own makes no tensors of a class like these."""
    if id(tensor) not in memo:
        if not tensor.is_leaf:
            raise RuntimeError("Only Tensors created explicitly by the user support deepcopy")
        with torch.no_grad(), torch._C.DisableTorchFunction():
            copied = tensor.detach().clone().as_subclass(type(tensor))
            copied.requires_grad_(tensor.requires_grad)
        copied.__dict__.update(copy.deepcopy(tensor.__dict__, memo))
        memo[id(tensor)] = copied
    return memo[id(tensor)]


def _moved(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """``to``, ``cpu`` and ``cuda``: a copy on another device, or what they do to the dtype."""
    tensor, *rest = args
    source = place_of(tensor)
    target = CPU if func is Tensor.cpu else source
    if func is Tensor.cuda:
        target, rest = numbered(rest[0] if rest else kwargs.get("device", "cuda")), []
    if func is Tensor.to and rest and isinstance(rest[0], Tensor):
        target, rest[0] = place_of(rest[0]), rest[0].dtype
    elif func is Tensor.to and rest and isinstance(rest[0], str | torch.device | int):
        target, rest[0] = numbered(rest[0]), CPU
    if kwargs.get("device") is not None:
        target = numbered(kwargs["device"])
    kwargs = {name: value for name, value in kwargs.items() if name != "device"}
    if target.type == "meta":
        return tensor.to("meta", *rest[1:], **kwargs)
    if source != target:
        for device in (source, target):
            if device.type != "cpu" and not kwargs.get("non_blocking"):
                watch.read(func, device)
    moved = tensor.to(*rest, **kwargs) if func is Tensor.to and (rest or kwargs) else tensor
    if moved is tensor and source != target:
        moved = tensor.clone()
    for device in {source, target} - {CPU}:
        watch.ran(func, device)
    return moved if moved is tensor else put(moved, target)


class Devices(TorchFunctionMode):
    """Within the block, torch makes and moves tensors to GPUs that are not there."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Functions with a device, or of tensors on one."""
        return run(func, args, kwargs or {})


def tensors(values: Any) -> Iterator[Tensor]:
    """Every tensor in ``values``."""
    return (each for each in tree_flatten(values)[0] if isinstance(each, Tensor))
