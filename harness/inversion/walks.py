"""Walks through input space that should leave the output unchanged (003, the parts on walks).

A walk starts at embeddings [rows, n, d]; every row walks by itself, all of them in one batch.  The
output is any function of embeddings to [rows, n, features] in which rows are independent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from assay.harness.models.subject import Subject
from assay.harness.operations.choices import check_choice
from assay.harness.results.errors import BadInput

Output = Callable[[Tensor], Tensor]
"""Embeddings [rows, n, d] → [rows, n, features]."""

Sources = Sequence[torch.Generator]
"""One random generator for each row: its draws do not depend on the batch."""

SIZE = 0.01
"""The step size of the document's orthogonal walk, whose directions have length 1."""

DIRECTIONS = ("last", "several", "first", "random")
"""One null vector for all tokens, one for each, one that is not a null vector, a random null one.
"""


class _Target(Protocol):
    def output(self, subject: Subject, ids: Tensor | None = None, **inputs: Tensor) -> Tensor: ...


def output_function(subject: Subject, target: _Target) -> Output:
    """The output of a `Target` or a `Net` on ``subject``, in the dtype of the embeddings."""
    return lambda x: target.output(subject, embeddings=x.to(subject.dtype)).to(x.dtype)


# -- the orthogonal walk --------------------------------------------------------------------------


def orthogonal(
    output: Output,
    start: Tensor,
    steps: int,
    size: float = SIZE,
    along: str = "last",
    sources: Sources = (),
) -> Tensor:
    """Walk orthogonally to the gradient of the summed output: [rows, n, d].

    At each step every token moves by ``size`` along one unit vector that is orthogonal to all
    tokens' gradients: the ``last`` right-singular vector, as in document 003, or a ``random`` one,
    from the row's source.  With ``several`` each token has its own of the last right-singular
    vectors; the ``first`` one is not orthogonal.  Raises `BadInput` where no vector is orthogonal.
    """
    rows, n, d = _shape(start)
    check_choice("direction", along, DIRECTIONS)
    if steps < 1:
        raise BadInput(f"steps {steps}: at least 1 is needed")
    if n >= d or (along == "several" and 2 * n > d):
        raise BadInput(f"walk: gradients of {n} tokens in {d} dimensions have no null space")
    if along == "random":
        _check_sources(sources, rows)
    x = start.detach().clone()
    for _ in range(steps):
        gradient = gradient_of_sum(output, x)
        if along == "random":
            direction = random_orthogonal(gradient, sources)[:, None]
        else:
            vectors = torch.linalg.svd(gradient).Vh
            places = {"last": slice(-1, None), "several": slice(-n, None), "first": slice(1)}
            direction = vectors[:, places[along]]
        x += size * direction
    return x


def gradient_of_sum(output: Output, x: Tensor) -> Tensor:
    """∇ Σ output of every row: [rows, n, d]."""
    leaf = x.detach().requires_grad_()
    with torch.enable_grad():
        (gradient,) = torch.autograd.grad(output(leaf).sum(), leaf)
    return _finite(gradient)


def random_orthogonal(gradient: Tensor, sources: Sources) -> Tensor:
    """A uniform random unit vector orthogonal to a row's gradients: [rows, d]."""
    basis = torch.linalg.qr(gradient.mT).Q
    direction = _normal(sources, gradient.shape[2:], gradient)[:, :, None]
    for _ in range(2):  # the second time removes the rounding error of the first
        direction = direction - basis @ (basis.mT @ direction)
    return torch.nn.functional.normalize(direction[:, :, 0], dim=1)


# -- the clamped walk -----------------------------------------------------------------------------


@dataclass
class Walk:
    """The ``end`` of a walk [rows, n, d], and its embeddings after the steps ``watched``."""

    end: Tensor
    watched: dict[int, Tensor] = field(default_factory=dict)


def clamped(
    output: Output,
    start: Tensor,
    steps: int,
    noise: float | Tensor,
    rate: float | Tensor,
    sources: Sources,
    descents: int = 1,
    watch: Sequence[int] = (),
) -> Walk:
    """Shift some coordinates at random, and descend with the others to restore the output.

    At each step a row draws an index.  The coordinates from it on, of all its tokens, get noise of
    the scale ``noise`` (the document's ``rand_eta``).  Those before it take ``descents`` steps
    down the L1 distance of the output, at ``rate`` (its ``lr``).  Both are numbers, or one for
    each row [rows].  ``watch`` names steps after which to keep embeddings.
    """
    rows, _, d = _shape(start)
    if steps < 1 or descents < 0:
        raise BadInput(f"steps {steps}, descents {descents}: at least 1 and 0 are needed")
    _check_sources(sources, rows)
    x, scale, size = start.detach().clone(), _each(noise, start), _each(rate, start)
    with torch.no_grad():
        goal = _finite(output(x), "output")
    walk = Walk(x, {0: x.clone()} if 0 in watch else {})
    places = torch.arange(d, device=x.device)
    for step in range(1, steps + 1):
        indices = [torch.randint(d, (1,), generator=source) for source in sources]
        free = places < torch.stack(indices).to(x.device)[:, :, None]
        x += scale * _normal(sources, x.shape[1:], x) * ~free
        for _ in range(descents):
            x -= size * _gradient_of_distance(output, x, goal) * free
        if step in watch:
            walk.watched[step] = x.clone()
    return walk


def steepness(output: Output, start: Tensor, noise: float | Tensor, sources: Sources) -> Tensor:
    """The steepness of the L1 distance after adding ``noise`` to ``start``: [rows].

    It is the root mean square of the gradient's elements, a good unit for learning rates.
    """
    with torch.no_grad():
        goal = output(start)
    shifted = start + _each(noise, start) * _normal(sources, start.shape[1:], start)
    return _gradient_of_distance(output, shifted, goal).flatten(1).square().mean(1).sqrt()


def _gradient_of_distance(output: Output, x: Tensor, goal: Tensor) -> Tensor:
    return gradient_of_sum(lambda leaf: (output(leaf) - goal).abs(), x)


# -- results --------------------------------------------------------------------------------------


def displace_at_random(start: Tensor, end: Tensor, sources: Sources) -> Tensor:
    """``start`` moved in a random direction, by its L1 distance from ``end``: [rows, n, d]."""
    noise = _normal(sources, start.shape[1:], start)
    return start + noise * (size(end - start) / size(noise))[:, None, None]


def size(x: Tensor, norm: str = "l1") -> Tensor:
    """‖x‖ of every row, over tokens and features: [rows, n, features] → [rows]."""
    sizes: Tensor = torch.linalg.vector_norm(x.flatten(1), {"l1": 1, "l2": 2}[norm], dim=1)
    return sizes


@torch.no_grad()
def change(output: Output, start: Tensor, end: Tensor, norm: str = "l1") -> Tensor:
    """d_o / d_i: the output's distance over the input's, [rows]."""
    return size(output(end) - output(start), norm) / size(end - start, norm)


def stability(output: Output, start: Tensor, end: Tensor) -> Tensor:
    """The document's r, d_i / d_o in L1: large where the output barely moved, [rows]."""
    return 1 / change(output, start, end)


# -- inputs ---------------------------------------------------------------------------------------


def _shape(start: Tensor) -> tuple[int, int, int]:
    if start.ndim != 3 or not start.numel():
        raise BadInput(f"walk: [rows, n, d] are needed and not {list(start.shape)}")
    _finite(start, "start")
    rows, n, d = start.shape
    return rows, n, d


def _finite(x: Tensor, name: str = "gradient") -> Tensor:
    if not bool(x.isfinite().all()):
        raise BadInput(f"walk: the {name} holds numbers that are not finite")
    return x


def _check_sources(sources: Sources, rows: int) -> None:
    if len(sources) != rows:
        raise BadInput(f"walk: {rows} rows need as many sources and not {len(sources)}")


def _normal(sources: Sources, shape: Sequence[int], like: Tensor) -> Tensor:
    """Standard normal numbers [rows, *shape]: the same on every device."""
    return torch.stack([torch.randn(tuple(shape), generator=s) for s in sources]).to(like)


def _each(value: float | Tensor, x: Tensor) -> Tensor:
    """One number for each row [rows, 1, 1]."""
    numbers = torch.as_tensor(value).to(x).expand(len(x)).reshape(-1, 1, 1)
    return _finite(numbers, "noise or rate")
