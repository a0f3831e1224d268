"""Where in a model a fault makes its change: what `fault` takes as ``at``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from assay.harness.faults import anatomy
from assay.harness.faults.bed import Bed
from assay.harness.faults.calls import Pass
from assay.harness.models.subject import experts as implementations
from assay.harness.models.subject import roles
from assay.harness.models.subject.roles import Role


def first_block(bed: Bed, change: Callable[[Pass, Tensor], Any]) -> None:
    """After the first block: ``change(pass, state)``, [rows, new, hidden]."""
    bed.after(anatomy.blocks(bed.subject)[0], change)


def last_block(bed: Bed, change: Callable[[Pass, Tensor], Any]) -> None:
    """After the last block: ``change(pass, state)``, [rows, new, hidden]."""
    bed.after(anatomy.blocks(bed.subject)[-1], change)


def every_block(bed: Bed, change: Callable[[Pass, Tensor], Any]) -> None:
    """After each block: ``change(pass, state)``, [rows, new, hidden]."""
    for block in anatomy.blocks(bed.subject):
        bed.after(block, change)


def experts(bed: Bed, change: Callable[[Pass, Tensor], Any]) -> None:
    """After each mixture of experts: ``change(pass, state)``, [rows, new, hidden]."""
    for mixture, _router in anatomy.mixtures(bed.subject):
        bed.after(mixture, change)


def sdpa(bed: Bed, change: Callable[..., Any]) -> None:
    """Replacing attention by sdpa: ``change(call)`` (`AttentionCall`)."""
    bed.attention(anatomy.mixers(bed.subject), "sdpa", change)


def experts_at_once(bed: Bed, change: Callable[..., Any]) -> None:
    """Replacing experts computed many at once: ``change(call)`` (`ExpertsCall`)."""
    bed.experts(implementations.modules(bed.subject), implementations.NAMED, change)


def rotations(bed: Bed, change: Callable[[Pass, Tensor], Tensor]) -> None:
    """Before positions become angles: ``change(pass, positions)`` returns others."""
    for module in anatomy.angles(bed.subject):
        bed.before(module, partial(_positions_changed, inner=change))


def _positions_changed(
    forward: Pass,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    inner: Callable[[Pass, Tensor], Tensor],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if (name := roles.name_in(kwargs, Role.POSITIONS)) is not None:
        return args, {**kwargs, name: inner(forward, kwargs[name])}
    return (args[0], inner(forward, args[1]), *args[2:]), kwargs


def biases(bed: Bed, change: Callable[[Pass, Tensor], Tensor]) -> None:
    """Before attention takes a bias by distance: ``change(pass, bias)`` returns another."""
    for module in anatomy.slopes(bed.subject):
        bed.before(module, partial(_bias_changed, inner=change))


def _bias_changed(
    forward: Pass,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    inner: Callable[[Pass, Tensor], Tensor],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return args, {**kwargs, "alibi": inner(forward, kwargs["alibi"])}


def output(bed: Bed, change: Callable[[Pass, Any], Any]) -> None:
    """After the whole model: ``change(pass, output)`` returns another, or None to keep it."""
    bed.after_any(bed.model, change)


def embedding_table(bed: Bed, change: Callable[[Tensor], Any]) -> None:
    """The input embedding matrix [vocabulary, hidden]: ``change(weights)``, in place."""
    bed.weights(bed.subject.embedding_table, change)
