"""Gradients of a model's output with respect to its input embeddings, and the Jacobian."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from assay.harness.checking.comparing import Unsettled
from assay.harness.inversion.descent import rows_that_fit
from assay.harness.inversion.nets import Net, per_token
from assay.harness.inversion.target import Target, embedded
from assay.harness.models.capabilities import Missing
from assay.harness.models.machine import batches
from assay.harness.models.machine.quantised_weights import passes_gradients
from assay.harness.models.machine.shortage import shortage
from assay.harness.models.reference.float64 import reference_of
from assay.harness.models.reference.tolerances import (
    TOLERANCES,
    Distance,
    Tolerance,
    distance,
    worst,
)
from assay.harness.models.subject import Subject
from assay.harness.models.subject.memo import memo
from assay.harness.models.subject.rows import Rows

PARTS = ("mlp", "block", "model")
"""An MLP like a block's, the first block, and all blocks (no head)."""

FACTOR = 4.0
"""Multiple of the noise allowed to a sum of gradients, besides the floor: both come from one
forward pass, so they differ by less than two passes do."""

VANISHED = 1e-6
"""Share of its parts' gradients below which a sum's gradient is rounding."""


def net(subject: Subject) -> Net:
    """Document 003's three-layer MLP: hidden → 4 × hidden → hidden, from a fixed seed."""
    generator = torch.Generator().manual_seed(0)
    like = torch.empty(0, dtype=subject.dtype, device=subject.device)
    return per_token(subject.hidden, generator, like)


def _output(subject: Subject, part: str, embeddings: Tensor) -> Tensor:
    if part == "mlp":
        return net(subject)(embeddings)
    return subject.block_output(1 if part == "block" else subject.layers, embeddings=embeddings)


def _leaf(subject: Subject, ids: Tensor) -> Tensor:
    leaf: Tensor = subject.input_embeddings(ids).detach().clone()
    return leaf.requires_grad_()


def of_sum(subject: Subject, part: str, ids: Tensor) -> Rows:
    """∇ Σ output, by one backward pass: ``gradient`` [batch, n, hidden] for ids [batch, n]."""
    leaf = _leaf(subject, ids)
    output = _output(subject, part, leaf)
    (gradient,) = torch.autograd.grad(output, leaf, torch.ones_like(output))
    return Rows({"gradient": gradient})


def of_pieces(subject: Subject, part: str, ids: Tensor, pieces: int) -> list[Rows]:
    """The gradients of the sums over ``pieces`` parts of the output's elements."""
    leaf = _leaf(subject, ids)
    output = _output(subject, part, leaf)
    which = torch.arange(output.numel(), device=output.device).reshape(output.shape) % pieces
    gradients = [
        torch.autograd.grad(output, leaf, (which == i).to(output), retain_graph=True)[0]
        for i in range(pieces)
    ]
    return [Rows({"gradient": gradient}) for gradient in gradients]


def total(terms: list[Rows]) -> Rows:
    """The sum of gradients."""
    return Rows({"gradient": torch.stack([term["gradient"] for term in terms]).sum(0)})


@memo
def vanishing(subject: Subject) -> frozenset[str]:
    """The parts whose output has a constant sum, and so a zero gradient of it.

    That happens where a norm without weights of its own comes last.
    """
    reference = reference_of(subject)
    ids = reference.content(torch.arange(3, device=reference.device)[None] * 5)
    parts = set()
    for part in PARTS:
        halves = of_pieces(reference, part, ids, 2)
        whole, half = (rows["gradient"].norm() for rows in (total(halves), halves[0]))
        # A gradient that is not finite has not vanished: the laws check it.
        if whole <= VANISHED * half < torch.inf:
            parts.add(part)
    return frozenset(parts)


def require(subject: Subject, part: str) -> None:
    """Raise `Missing` where the sum of the part's output has no gradient, or none flows."""
    if part in vanishing(subject):
        raise Missing(f"the output of the {part} is normalised last: its sum is always the same")
    if part != "mlp" and not _flow(subject):
        raise Missing("the layers with quantised weights pass no gradient on")


@memo
def _flow(subject: Subject) -> bool:
    return passes_gradients(subject.model, subject.dtype)


def lengths(terms: list[Rows]) -> Tensor:
    """The summed lengths of gradients by row [batch, n], with which a sum's rounding scales.

    Where terms cancel they exceed the length of their sum.
    """
    return torch.stack([term["gradient"].double().norm(dim=-1) for term in terms]).sum(0)


def apart(
    one: Rows,
    other: Rows,
    sizes: Tensor,
    spread: Tensor | None = None,
    rows: Tensor | None = None,
) -> Distance:
    """The row of two gradients that differs most, relative to ``sizes`` [batch, n].

    With a ``spread`` [batch, n], only the excess over `FACTOR` times that counts; with ``rows``
    (bool [batch, n]), only those rows.
    """
    errors = distance(one["gradient"], other["gradient"], sizes=sizes)
    if spread is not None:
        errors = (errors - FACTOR * spread).clamp_min(0.0)
    if rows is not None:
        errors = torch.where(rows, errors, 0.0)
    return worst(errors, "gradient")


def spread(plain: Rows, elsewhere: Sequence[Rows], sizes: Tensor) -> Tensor:
    """How far other machines' rounding moves each row of a gradient, relative to ``sizes``.

    Rows differ: with saturated attention, rounding may be a hundred times that of the median row.
    A wrong gradient is wrong under every rounding and excuses nothing.
    """
    moved = [distance(other["gradient"], plain["gradient"], sizes=sizes) for other in elsewhere]
    return torch.stack(moved).amax(0)


def stable(spread: Tensor, tolerance: Tolerance) -> Tensor:
    """Rows [batch, n] that rounding alone moves by less than any difference that is allowed.

    Raises `Unsettled` where there are none, as in a model whose attention is saturated everywhere:
    its gradients say nothing.
    """
    rows = FACTOR * spread <= tolerance.most
    if not rows.any():
        raise Unsettled(f"rounding alone moves every row by {float(spread.min()):.2g} or more")
    return rows


def leaking(gradient: Rows, less: Rows, sizes: Tensor, size: float) -> Rows:
    """``gradient`` moved towards ``less``, a sum that lacks a term, by ``size`` × ``sizes``."""
    rows = gradient["gradient"].double()
    direction = torch.nn.functional.normalize(less["gradient"].double() - rows, dim=-1)
    return Rows({"gradient": rows + size * sizes[..., None] * direction})


def noise(plain: Rows, exact: Rows, sizes: Tensor, rows: Tensor | None = None) -> float:
    """The median row's rounding error of a gradient, relative to ``sizes`` [batch, n].

    A few rows may be far off and right: where a ReLU's input is close to 0, or two experts are
    nearly tied, the rounded pass and the exact one are on two sides of a kink.
    """
    moved = distance(plain["gradient"], exact["gradient"], sizes=sizes)
    return float((moved if rows is None else moved[rows]).median())


def allowed(tolerance: Tolerance, noise: float) -> float:
    """The bound for a sum of gradients, where rounding moves a gradient by ``noise``."""
    return min(tolerance.allowed(noise), tolerance.floor + FACTOR * noise)


def _wide(gradient: Tensor) -> Tensor:
    """The gradient in a dtype with a singular value decomposition."""
    half = gradient.dtype in (torch.float16, torch.bfloat16)
    return gradient.float() if half else gradient


def alignment(gradient: Tensor) -> tuple[float, float, float]:
    """The largest |g·v| / (‖g‖‖v‖) for singular vectors beyond the n-th; for the first; the floor.

    ``gradient`` [n, hidden] with n < hidden.
    """
    g = _wide(gradient)
    vectors = torch.linalg.svd(g).Vh
    products = (g @ vectors.T).norm(dim=0) / g.norm()
    floor = TOLERANCES[g.dtype].floor
    return float(products[len(g) :].max()), float(products[0]), floor


def last_product(gradient: Tensor) -> float:
    """The largest |g·v| over tokens for the last right-singular vector, as in document 003."""
    g = _wide(gradient)
    return float((g @ torch.linalg.svd(g).Vh[-1]).abs().max())


def jacobian(subject: Subject, target: Target, ids: Tensor) -> Tensor:
    """∂ O(e)[last] / ∂ e[last] of one prompt ``ids`` [n]: [features, d].

    One forward pass, and one backward for all output features at once.  Where an operation does
    not support that, every feature has its own row of a batch.
    """
    features = target.features(subject)
    e = embedded(subject)[ids]
    parts: list[Tensor] = []

    def run(some: slice) -> None:
        mine = torch.arange(some.start, some.stop, device=e.device)
        try:
            gradient = _at_once(subject, target, e, mine)
        except (RuntimeError, NotImplementedError) as error:
            if shortage(error):
                raise
            gradient = _row_by_row(subject, target, e, mine)
        parts.append(gradient[:, -1])

    batches.in_batches(run, features, rows_that_fit(subject, target, len(ids)))
    return torch.cat(parts)


def _at_once(subject: Subject, target: Target, e: Tensor, features: Tensor) -> Tensor:
    """The gradients [features, n, d] at ``e`` [n, d] of the last state's ``features``."""
    leaf = e[None].clone().requires_grad_()
    last = target.output(subject, embeddings=leaf)[0, -1]
    chosen = F.one_hot(features, len(last)).to(last)
    (gradients,) = torch.autograd.grad(last, leaf, chosen, is_grads_batched=True)
    return gradients[:, 0]


def _row_by_row(subject: Subject, target: Target, e: Tensor, features: Tensor) -> Tensor:
    """The same, each from a row of its own."""
    leaf = e.expand(len(features), -1, -1).clone().requires_grad_()
    last = target.output(subject, embeddings=leaf)[:, -1]
    (gradients,) = torch.autograd.grad(last.gather(1, features[:, None]).sum(), leaf)
    return gradients


def condition(matrix: Tensor) -> float:
    """The largest singular value over the smallest, computed in float64."""
    values = torch.linalg.svdvals(matrix.double())
    return float(values[0] / values[-1].clamp_min(torch.finfo(torch.float64).tiny))
