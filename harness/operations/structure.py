"""Structure of an embedding matrix: cosines of its rows and columns, compared with shuffles."""

from __future__ import annotations

import math

import scipy
import torch
from torch import Tensor

from assay.harness.checking.draws import Draws
from assay.harness.results.arrays import Array

RANKS = (0, 22, 44, 66, 88)
"""The ranks among the most similar pairs that document 002 prints."""

PUBLISHED_SHAPE = (1024, 768)
PUBLISHED_ROWS = (
    (-1.8821e-02, -1.9742e-01, 4.0267e-03, -4.3044e-02, 2.8267e-02, 5.4490e-02),
    (2.3959e-02, -5.3792e-02, -9.4879e-02, 3.4170e-02, 1.0172e-02, -1.5573e-04),
)
"""The first and last three numbers of the first two rows of the published GPT-2's position
embedding, as torch prints them."""

LEAST_LOG_P = -300.0
"""In place of the logarithm of a p-value too small for a float."""


def cosines(table: Tensor) -> Tensor:
    """Cosines between the rows of [n, d]: [n, n], float64; NaN for a row of zeros."""
    rows = table.double()
    rows = rows / torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return torch.mm(rows, rows.T)


def above_diagonal(square: Tensor) -> Tensor:
    """The entries [n (n - 1) / 2] above the diagonal, by their indices.

    Document 002 takes the non-zero entries, which loses true zeros.
    """
    i, j = torch.triu_indices(len(square), len(square), offset=1, device=square.device)
    return square[i, j]


def shuffled(table: Tensor, draws: Draws) -> list[Tensor]:
    """All numbers of ``table`` [n, d] in random order, once for each draw."""
    flat = table.flatten()
    return [
        flat[torch.randperm(len(flat), generator=draws.generator(i, "shuffle"))].view_as(table)
        for i in draws
    ]


def between_columns(table: Tensor) -> Tensor:
    """The cosines of all pairs of columns of [n, d]: [d (d - 1) / 2]."""
    return above_diagonal(cosines(table.T))


def log_p(one: Tensor, other: Tensor) -> float:
    """The base-10 logarithm of the two-sample Kolmogorov–Smirnov test's p-value.

    NaN where a number of either sample is.
    """
    p = float(scipy.stats.ks_2samp(one.cpu().numpy(), other.cpu().numpy(), method="asymp").pvalue)
    if math.isnan(p):
        return p
    return max(LEAST_LOG_P, math.log10(p)) if p > 0.0 else LEAST_LOG_P


def kurtosis(values: Tensor) -> float:
    """Excess kurtosis: 0 for a normal distribution."""
    return float(scipy.stats.kurtosis(values.cpu().numpy()))


def top_pairs(table: Tensor, ranks: tuple[int, ...] = RANKS) -> list[tuple[int, int, float]]:
    """The pairs of columns (i < j) with the largest cosines, at ``ranks``, with the cosine.

    Fewer where there are fewer pairs.  A pair without a cosine (NaN) comes last.
    """
    square = cosines(table.T)
    i, j = torch.triu_indices(len(square), len(square), offset=1)
    values = above_diagonal(square)
    order = values.nan_to_num(nan=-2.0).argsort(descending=True)
    best = [int(order[rank]) for rank in ranks if rank < len(order)]
    return [(int(i[place]), int(j[place]), float(values[place])) for place in best]


def histograms(samples: dict[str, Tensor], bins: int = 100) -> dict[str, Array]:
    """Counts [bins] of cosines under each label, and their ``edges`` [bins + 1]."""
    finite = [values[values.isfinite()] for values in samples.values()]
    reach = max((float(values.abs().max()) for values in finite if len(values)), default=1.0)
    edges = torch.linspace(-max(reach, 1e-9), max(reach, 1e-9), bins + 1, dtype=torch.float64)
    counts = {
        label: torch.histogram(values.double().cpu(), edges).hist.numpy()
        for label, values in zip(samples, finite, strict=True)
    }
    return {"edges": edges.numpy(), **counts}


def is_published_gpt2(table: Tensor) -> bool:
    """Whether ``table`` is the published GPT-2's (the smallest size), in any dtype.

    Twelve of its numbers identify it: a hash would not survive a cast to 16 bits.
    """
    if tuple(table.shape) != PUBLISHED_SHAPE:
        return False
    ends = torch.cat([table[:2, :3], table[:2, -3:]], dim=1).double().cpu()
    published = torch.tensor(PUBLISHED_ROWS, dtype=torch.float64)
    return bool(torch.allclose(ends, published, rtol=1e-2, atol=1e-6))
