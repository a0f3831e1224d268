"""Undoes the rotation of keys, which differs from place to place, so that one map fits all.

A rotation changes no distance, so an inversion of unrotated keys is one of the keys themselves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from assay.harness.models import capabilities, masks
from assay.harness.models.capabilities import Missing
from assay.harness.models.memo import memo
from assay.harness.models.shortage import pass_on
from assay.harness.models.subject import Subject
from assay.harness.operations.inversion.candidates import accepted, relative
from assay.harness.operations.inversion.target import Target

ROWS = 2
"""Keys that a rotation is estimated from, for each of their features."""

PLACES = 32
"""The least number of places whose rotations are estimated."""

TOKENS_AT_ONCE = 4096
"""Tokens in one pass."""

STILL = 1e-3
"""The largest element by which a rotation that is none differs from it."""


@dataclass(frozen=True)
class Unrotated(Target):
    """The keys of block ``depth``, each rotated back to the first place."""

    def kept(
        self, subject: Subject, ids: Tensor | None, cache: Any = None, **inputs: Any
    ) -> Tensor:
        """See `Target.kept`; in float32, or wider."""
        layers = [] if cache is None else cache.layers[self.depth - 1 : self.depth]
        before = sum(int(layer.get_seq_length()) for layer in layers)
        keys = super().kept(subject, ids, cache, **inputs)
        if (places := inputs.get("positions")) is not None:
            return _back(subject, self.depth, keys, places, int(places.max()) + 1)
        end = before + keys.shape[1]
        places = torch.arange(before, end, device=keys.device)
        return _back(subject, self.depth, keys, places, end)


def without_rotation(subject: Subject, target: Target, goal: Tensor) -> tuple[Target, Tensor]:
    """Keys rotated back, and ``goal`` [rows, n, F] too, where the target is keys that rotate.

    Any other target stays as it is.
    """
    if target.through != "keys" or (turns := rotations(subject, target.depth, 1)) is None:
        return target, goal
    keys, n = goal.unflatten(2, (-1, turns.shape[-1])), goal.shape[1]
    places = torch.arange(n, device=keys.device)
    return Unrotated(target.depth, "keys"), _back(subject, target.depth, keys, places, n).flatten(
        2
    )


def _back(subject: Subject, depth: int, keys: Tensor, places: Tensor, n: int) -> Tensor:
    """``keys`` [batch, k, heads, width] at ``places`` [k], below ``n``, as at the first place."""
    turns = rotations(subject, depth, n)
    assert turns is not None
    return torch.einsum("bnhv,nwv->bnhw", keys.to(turns), turns[places])


def rotations(subject: Subject, depth: int, n: int) -> Tensor | None:
    """R_p of ``n`` places at least, by which the keys of block ``depth`` differ from place 0.

    Row vectors of all heads are multiplied by them: [places, width, width], orthogonal,
    float32 or wider.
    None where keys do not rotate, or do more than that.
    """
    every = _rotations(subject)
    known = every.get(depth)
    if depth not in every or (known is not None and len(known) < n):
        places = max(PLACES, 1 << (n - 1).bit_length())
        try:
            known = _estimated(subject, depth, min(places, subject.context or places))
        except (Missing, ValueError, RuntimeError, TypeError, LookupError) as error:
            pass_on(error)
            known = None
        every[depth] = known
    return known


@memo
def _rotations(subject: Subject) -> dict[int, Tensor | None]:
    return {}


def _estimated(subject: Subject, depth: int, n: int) -> Tensor | None:
    """The rotations of ``n`` places, from tokens that each attend to themselves alone.

    The nearest ones in least squares (Schönemann, 1966), as long as they account for all keys.
    """
    if "mask-4d" not in capabilities.probe(subject):
        return None
    target, draw = Target(depth, "keys"), torch.Generator().manual_seed(0)
    alone = masks.additive(torch.eye(n, dtype=torch.bool, device=subject.device), subject.dtype)

    def keys(count: int) -> Tensor:
        tokens = torch.randint(subject.vocabulary, (count, 1), generator=draw)
        ids = subject.content(tokens.to(subject.device)).expand(-1, n)
        some = ids.split(max(1, TOKENS_AT_ONCE // n))
        return torch.cat([target.kept(subject, each, mask=alone) for each in some]).double()

    heads, width = keys(1).shape[2:]
    at = keys(math.ceil(ROWS * width / heads)).transpose(0, 1).flatten(1, 2)  # [n, keys, width]
    if not bool(at.isfinite().all()):
        return None
    left, _, right = torch.linalg.svd(at[0].T @ at)
    turns = left @ right
    if not bool((relative(at[0] @ turns, at) <= accepted(subject)).all()):
        return None
    still = torch.eye(width, dtype=turns.dtype, device=turns.device)
    wide = torch.promote_types(subject.dtype, torch.float32)
    return None if torch.allclose(turns, still, atol=STILL) else turns.to(wide)
