"""Runs a model under autocast, which casts the inputs of matrix products to bfloat16."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from assay.harness.checking.comparing import BY_ROUNDING, Unsettled
from assay.harness.checking.reference import Reference, run_elsewhere
from assay.harness.checking.sensitivity import GOALS
from assay.harness.models.machine.dispatching import Dispatching
from assay.harness.models.machine.shortage import pass_on
from assay.harness.models.reference.float64 import reference_of
from assay.harness.models.reference.tolerances import TOLERANCES, distance
from assay.harness.models.subject import Subject, encoders, routing, selection
from assay.harness.models.subject.memo import memo
from assay.harness.models.subject.rows import Rows
from assay.harness.results.errors import REFUSALS, Missing, brief

DTYPE = torch.bfloat16
"""The dtype to which products are cast."""

TOLERANCE = replace(TOLERANCES[DTYPE], sees=GOALS[DTYPE].other)
"""The bound for a model in float32 whose products are in bfloat16."""

WORST_ROW = replace(TOLERANCE, typical=None)
"""The bound for a copy in bfloat16, which also rounds what autocast leaves in float32."""

PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm", "linear", "mkldnn_linear"})
"""Operations whose results `eight_bits` rounds."""

CHOOSING = frozenset({"topk", "argmax", "sort"})
"""Operations by which experts are chosen, or keys."""

FAR = 0.1
"""A row that rounding to bfloat16 moves by this share of its length is not compared."""

DRAWS = 4
"""Draws of bfloat16's rounding, of which the largest error counts."""


def rows(subject: Subject, ids: Tensor) -> Rows:
    """The rows of ``ids`` [batch, n] under autocast, an encoder's states included.

    Raises what the model raises.
    """
    with torch.autocast(subject.device.type, dtype=DTYPE):
        if not subject.is_encoder_decoder:
            return subject.rows(ids)
        return subject.rows(ids, encoded=encoders.encoded(subject, len(ids)))


def references(
    subject: Subject, cast: Subject, ids: Tensor, exact: Reference
) -> tuple[Reference, Reference]:
    """The rows of ``ids`` [batch, n] of the copy ``cast``, and of the subject under autocast, each
    with the float64 rows of ``exact``, of which those that rounding decides do not count.

    Raises `Unsettled` where rounding chooses other experts, or other keys, than float64 does:
    of models that return their routers' scores, rows count or not (`Rows.row_mask`).
    """

    def copied() -> Rows:
        return cast.rows(ids)

    def mixed() -> Rows:
        return rows(subject, ids)

    with _Choices() as ours:
        first = copied()
    with _Choices() as theirs:
        second = mixed()
    gaps = exact.oracle.tensors.get("router gap")
    # Every gap is one where no router was heard (`models.subject.passes`), as of plain Doge.
    heard = selection.routes(subject) and gaps is not None and bool((gaps != 1).any())
    if ours.made and not heard:
        with _Choices() as right:
            reference_of(subject).rows(ids)
        if not (right.equal(ours) and right.equal(theirs)):
            raise Unsettled(BY_ROUNDING)
    steady = _steady(reference_of(subject), ids, exact.oracle)
    if not bool((steady["router gap"] > TOLERANCE.floor).any()):
        raise Unsettled(BY_ROUNDING)
    return (
        Reference(first, steady, run_elsewhere(copied)),
        Reference(second, steady, run_elsewhere(mixed)),
    )


def _steady(oracle: Subject, ids: Tensor, exact: Rows) -> Rows:
    """The float64 rows ``exact`` of ``ids``, with those marked as undecided that bfloat16's
    rounding alone moves by more than `FAR` in one of `DRAWS` draws: such a row says nothing.
    """
    errors = []
    for seed in range(DRAWS):
        with _Rounded(seed):
            moved = oracle.rows(ids).tensors
        names = (name for name in exact.tensors if name != "router gap")
        errors.append(torch.stack([distance(moved[n], exact[n]) for n in names]).amax(0))
    worst = torch.stack(errors).amax(0)[..., None]
    gap = exact.tensors.get("router gap", torch.ones_like(worst)).expand_as(worst)
    return Rows({**exact.tensors, "router gap": torch.where(worst < FAR, gap, 0.0)})


def require(subject: Subject) -> None:
    """Raise `Missing` where autocast changes nothing, or the model does not run under it."""
    if subject.dtype != torch.float32:
        raise Missing(f"autocast: the model is in {subject.dtype}, of which nothing is cast")
    if why := _obstacle(subject):
        raise Missing(f"autocast: {why}")


@memo
def _obstacle(subject: Subject) -> str:
    ids = subject.content(torch.arange(subject.shortest + 1, device=subject.device)[None])
    try:
        rows(subject, ids)
    except REFUSALS as error:
        pass_on(error)
        return f"the model does not run under it ({brief(error)})"
    if subject.is_encoder_decoder and selection.chooses(subject):
        with routing.choosing(reference_of(subject)) as gaps:
            encoders.encoded(reference_of(subject), 1)
        if any(bool((each <= TOLERANCE.floor).any()) for each in gaps):
            return "rounding to bfloat16 chooses among the experts for the encoder's prompt"
    return ""


def _name(func: Any) -> str:
    """An operation's name, without namespace, overload and underscores."""
    name: str = func.name()
    return name.rpartition("::")[2].partition(".")[0].strip("_")


class _Choices(Dispatching):
    """Notes what is chosen by the largest of some scores: ``made`` are the indices."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.made: list[Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if _name(func) in CHOOSING and args[0].is_floating_point():
            indices = result if isinstance(result, Tensor) else result[1]
            self.made.append(indices.sort(-1).values if _name(func) == "topk" else indices)
        return result

    def equal(self, other: _Choices) -> bool:
        """Whether the same was chosen."""
        pairs = zip(self.made, other.made, strict=False)
        return len(self.made) == len(other.made) and all(torch.equal(a, b) for a, b in pairs)


class _Rounded(Dispatching):
    """Moves every result by as much as rounding to bfloat16 may, at random by ``seed``.

    Integers that bfloat16 represents stay.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seed, self.calls = seed, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not isinstance(result, Tensor) or not result.is_floating_point() or func.is_view:
            return result
        self.calls += 1
        chance = torch.Generator().manual_seed(self.seed * 1_000_003 + self.calls)
        noise = torch.rand(result.shape, generator=chance).to(result)
        exact = (result == result.round()) & (result.abs() < 2 / torch.finfo(DTYPE).eps)
        large = result.abs() > torch.finfo(DTYPE).max / 2
        moved = result * (1 + (noise - 0.5) * torch.finfo(DTYPE).eps)
        return torch.where(exact | large | ~result.isfinite(), result, moved)


class _EightBits(Dispatching):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if _name(func) not in PRODUCTS or not isinstance(result, Tensor):
            return result
        return result.to(torch.float8_e5m2).to(result.dtype)


@contextmanager
def eight_bits() -> Iterator[None]:
    """Round the results of matrix products to eight bits, two of them of mantissa, in a block."""
    with _EightBits():  # type: ignore[no-untyped-call]
        yield
