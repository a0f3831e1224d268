"""Scores of engines as log-probabilities, and how far two of them are apart."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from assay.harness.engines.interface import Scores
from assay.harness.results.arrays import Array
from assay.harness.results.errors import BadInput

LEAST = -80.0
"""Nats: less probable tokens are as good as impossible, and compared as this probable."""

TOO_MUCH = 1e-3
"""Log-probabilities of some tokens whose probabilities add up to one and more than this are
none."""

Listed = NDArray[np.int64] | None
"""The ids of scores; None: the whole vocabulary."""


@dataclass(frozen=True)
class Rows:
    """Log-probabilities ``values`` [rows, k] in nats, float64, from position ``first`` on.

    ``tokens`` [rows, k] are the ids that they are of; None: the whole vocabulary.  ``shift``
    [rows] is what the engine's own numbers exceed log-probabilities by: 0 where it gives those.
    ``spread`` [rows], of listed tokens, is that of the whole vocabulary, where a model knows it.
    """

    values: Array
    tokens: Listed = None
    first: int = 0
    shift: Array | None = None
    spread: Array | None = None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def end(self) -> int:
        """The position after the last row."""
        return self.first + len(self)

    def at(self, start: int, stop: int) -> Rows:
        """The rows of positions ``start`` to ``stop`` - 1, as far as there are any."""
        start, stop = (min(max(each, self.first), self.end) for each in (start, stop))
        rows = slice(start - self.first, stop - self.first)
        tokens = None if self.tokens is None else self.tokens[rows]
        spread = None if self.spread is None else self.spread[rows]
        return Rows(self.values[rows], tokens, start, spread=spread)

    def moved(self, by: int) -> Rows:
        """The same rows, said to be ``by`` positions later."""
        return Rows(self.values, self.tokens, self.first + by)

    @property
    def spreads(self) -> Array | None:
        """The standard deviation of each row over the vocabulary, in nats; None: unknown."""
        return self.spread if self.tokens is not None else self.values.clip(LEAST).std(1)

    def of(self, ids: ArrayLike) -> Array:
        """The log-probability of one id in each row [rows]; NaN where a row does not list it."""
        chosen = np.asarray(ids, dtype=np.int64)
        if self.tokens is None:
            return self.values[np.arange(len(self)), chosen]
        listed = self.tokens == chosen[:, None]
        values = np.where(listed, self.values, -np.inf).max(1)
        return np.where(listed.any(1), values, np.nan)


def rows_of(scores: Scores, vocabulary: int, name: str) -> Rows:
    """``scores`` as log-probabilities; raises `BadInput` where they are none."""
    values = _array(scores.values)
    if values.ndim != 2:
        raise BadInput(f"{name}: scores are of shape {list(values.shape)}, not [rows, k]")
    if scores.tokens is None:
        if values.shape[1] < vocabulary:
            raise BadInput(
                f"{name}: rows have {values.shape[1]} scores and no tokens; the vocabulary has "
                f"{vocabulary}"
            )
        # An output layer may be padded beyond the vocabulary, for speed.
        logits = torch.from_numpy(np.ascontiguousarray(values[:, :vocabulary]))
        shift = logits.logsumexp(-1, keepdim=True)
        return Rows((logits - shift).numpy(), None, scores.first, shift[:, 0].numpy())
    tokens = _array(scores.tokens).astype(np.int64)
    if tokens.shape != values.shape:
        raise BadInput(f"{name}: {list(tokens.shape)} tokens have {list(values.shape)} scores")
    if tokens.size and not (tokens.min() >= 0 and tokens.max() < vocabulary):
        raise BadInput(f"{name}: scores are of ids outside of 0 to {vocabulary - 1}")
    most = np.exp(values).sum(1).max(initial=0.0) if values.size else 0.0
    if most > 1.0 + TOO_MUCH:
        raise BadInput(f"{name}: the probabilities of some tokens add up to {most:.4g}")
    return Rows(values, tokens, scores.first)


def _array(values: Any) -> Array:
    if torch.is_tensor(values):
        values = values.detach().double().cpu().numpy()
    return np.asarray(values, dtype=np.float64)


@dataclass(frozen=True)
class Apart:
    """How far two answers are apart: the worst row's ``error``, its ``position``, and the
    ``typical`` error, that of the median row.
    """

    error: float
    position: int
    typical: float

    @property
    def where(self) -> str:
        """The place in words."""
        return f"the scores after position {self.position}"


def apart(one: Rows, other: Rows) -> Apart | None:
    """How far the rows of positions that both have are apart; None where there are none.

    Row by row the root mean square of a - b, in units of the spread of b, or of a where that
    alone has the whole vocabulary.  It is over the tokens that both list.  A best k lists no token
    less probable than its last but one: a token that only the other lists counts by how much it
    exceeds that.  Of listed tokens the unit is at least their own spread, and 1 nat.
    Infinite where a number is NaN.
    """
    start, stop = max(one.first, other.first), min(one.end, other.end)
    if stop <= start:
        return None
    a, b = one.at(start, stop), other.at(start, stop)
    known = next((each.spreads for each in (b, a) if each.spreads is not None), [0.0] * len(a))
    errors = [_error(_row(a, i), _row(b, i), spread) for i, spread in enumerate(known)]
    worst = int(np.argmax(errors))
    return Apart(errors[worst], start + worst, float(np.median(errors)))


def _row(rows: Rows, i: int) -> tuple[Array, Listed]:
    return rows.values[i], None if rows.tokens is None else rows.tokens[i]


def _error(one: tuple[Array, Listed], other: tuple[Array, Listed], spread: float) -> float:
    (a, mine), (b, theirs) = one, other
    if np.isnan(a).any() or np.isnan(b).any():
        return math.inf
    a, b = _listed(np.maximum(a, LEAST), mine, np.maximum(b, LEAST), theirs)
    scale = spread or 1.0 if mine is theirs is None else max(float(b.std()), spread, 1.0)
    return float(np.sqrt(np.mean((a - b) ** 2))) / float(scale)


def _listed(a: Array, mine: Listed, b: Array, theirs: Listed) -> tuple[Array, Array]:
    """The log-probabilities of the tokens that both list, or that one list must have."""
    if theirs is None:
        return a, b if mine is None else b[mine]
    if mine is None:
        return a[theirs], b
    of_a = dict(zip(mine.tolist(), a.tolist(), strict=True))
    of_b = dict(zip(theirs.tolist(), b.tolist(), strict=True))
    pairs = []
    for token in of_a.keys() | of_b.keys():
        x, y = of_a.get(token), of_b.get(token)
        if x is None and y is not None:
            x = min(y, _least(of_a))
        elif y is None and x is not None:
            y = min(x, _least(of_b))
        pairs.append((x, y))
    first, second = np.asarray(pairs, dtype=np.float64).T
    return first, second


def _least(listed: dict[int, float]) -> float:
    """What no token beside ``listed`` exceeds: its least probable one may be the chosen token, of
    whatever probability, beside the best.  One alone is the best.
    """
    return sorted(listed.values())[:2][-1]
