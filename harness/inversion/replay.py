"""Replays the tensor operations of a function, recorded once, without the Python around them.

On a CPU much of a step of a small model is Python: code before and between the model's
operations, masks and positions that are the same in every step, and autograd's graph.  A replay
has none of it.  The operations and their operands are those of the function itself, so the results
are bitwise equal wherever rounding does not depend on addresses.

Torch's own tracer (`torch.fx.experimental.proxy_tensor.make_fx`) gives up wherever code reads a
number, such as a mask's or a position's; here this applies only to tensors that derive from the
argument.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves, tree_map

from assay.harness.models.machine.dispatching import Dispatching

Function = Callable[[Tensor], tuple[Tensor, ...]]

UNLIKE = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
"""Tags of operations after which the next call may run differently: they read a number, or their
number of elements depends on one."""

AGREES = 1e-3
"""The largest relative error of a replay: far above rounding."""


class Unlike(RuntimeError):
    """The function may run other operations for other numbers, or has side effects."""


def replayed(function: Function, x: Tensor) -> Function:
    """``function``, replayed from a record of its operations at ``x`` where that is safe.

    It returns tensors that depend on its argument, whose shape is fixed.  Values that do not
    depend on it come from the record: the function's operations may depend on the argument's
    shape, never on its numbers.  Where an operation, or a trial at other numbers, shows that they
    do, the function itself is returned.
    """
    try:
        replay = _recorded(function, x)
    except (RuntimeError, NotImplementedError, TypeError):
        return function  # it raises by itself if the fault is its own
    other = x.roll(1, -1)
    agree = all(map(_agree, replay(other), function(other)))
    return replay if agree else function


def _agree(one: Tensor, other: Tensor) -> bool:
    return bool((one - other).norm() <= AGREES * other.norm())


def _recorded(function: Function, x: Tensor) -> Function:
    with _Recorder(x) as recorder:
        results = function(x)
    module = recorder.module(results)

    def replay(x: Tensor) -> tuple[Tensor, ...]:
        with torch.no_grad():
            results: tuple[Tensor, ...] = module(x)
            return results

    return replay


class _Recorder(Dispatching):
    """Inside this block, operations on tensors that derive from ``x`` are recorded in a graph."""

    def __init__(self, x: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.graph, self.constants = fx.Graph(), nn.Module()
        self.nodes = {id(x): self.graph.placeholder("x")}
        self.alive: list[Any] = [x]  # else another tensor might get its id

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        self.alive += [args, kwargs, result]
        if any(id(leaf) in self.nodes for leaf in tree_leaves((args, kwargs))):
            self._write(func, args, kwargs, result)
        return result

    def _write(self, func: Any, args: Any, kwargs: dict[str, Any], result: Any) -> None:
        if not isinstance(func, OpOverload) or not UNLIKE.isdisjoint(func.tags):
            raise Unlike(f"{func} may do otherwise for other numbers")
        if any(id(each) not in self.nodes for each in _written(func, args, kwargs)):
            raise Unlike(f"{func} writes to what the next call would find changed")
        if func is torch.ops.aten.detach.default:
            self.nodes[id(result)] = self.nodes[id(args[0])]
            return
        operands, named = tree_map(self._operand, (tuple(args), kwargs))
        node = self.graph.call_function(func, operands, named)
        if isinstance(result, Tensor):
            self.nodes[id(result)] = node
            return
        for place, each in enumerate(result):
            if isinstance(each, Tensor):
                part = self.graph.call_function(operator.getitem, (node, place))
                self.nodes[id(each)] = part

    def _operand(self, value: Any) -> Any:
        """The node of a tensor that derives from ``x``; others are constants of the graph."""
        if not isinstance(value, Tensor):
            return value
        if (node := self.nodes.get(id(value))) is not None:
            return node
        name = f"constant_{id(value)}"
        if not hasattr(self.constants, name):
            self.constants.register_buffer(name, value.detach())
            self.alive.append(value)
        return self.graph.get_attr(name)

    def module(self, results: tuple[Tensor, ...]) -> nn.Module:
        """The graph as a module that returns ``results``; raises `Unlike` if it lacks one."""
        if missing := [each for each in results if id(each) not in self.nodes]:
            raise Unlike(f"{len(missing)} results do not derive from the argument")
        self.graph.output(tuple(self.nodes[id(each)] for each in results))
        self.graph.eliminate_dead_code()
        return fx.GraphModule(self.constants, self.graph)


def _written(func: OpOverload, args: Any, kwargs: dict[str, Any]) -> list[Tensor]:
    """The operands that an operation writes to."""
    names = (argument.name for argument in func._schema.arguments)
    operands = dict(zip(names, args, strict=False)) | kwargs
    written = [
        operands.get(place.name)
        for place in func._schema.arguments
        if place.alias_info is not None and place.alias_info.is_write
    ]
    return [leaf for leaf in tree_leaves(written) if isinstance(leaf, Tensor)]
