"""Undoes the rotation of keys, which differs from place to place, so that one map fits all.

Keys are multiplied by orthogonal matrices, which changes no distance: prompts with the given keys
are those with the given rotated keys.  A poor estimate of the rotations costs passes, no more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from assay.harness.inversion.candidates import accepted, relative
from assay.harness.inversion.target import Target
from assay.harness.models import capabilities
from assay.harness.models.capabilities import Missing
from assay.harness.models.machine.shortage import pass_on
from assay.harness.models.subject import Subject, masks, positions
from assay.harness.models.subject.memo import memo

KEYS = 2
"""Keys of each place, of all heads, that a rotation is estimated from, for each feature of one."""

STEP = 32
"""Places 0 to 31, and every 32nd, have rotations of their own; others the product of two."""

BETWEEN = 17
"""A place between two of those, at which the product is compared with the keys."""

STILL = 1e-3
"""Matrices that differ by less from the identity, in every element, are no rotations."""


@dataclass(frozen=True)
class Unrotated(Target):
    """The keys of block ``depth``, each rotated back to the first place."""

    def keys_or_values(
        self, subject: Subject, ids: Tensor | None, cache: Any = None, **inputs: Any
    ) -> Tensor:
        """See `Target.keys_or_values`; in float32, or wider."""
        layers = [] if cache is None else cache.layers[self.depth - 1 : self.depth]
        before = sum(int(layer.get_seq_length()) for layer in layers)
        keys = super().keys_or_values(subject, ids, cache, **inputs)
        end = before + keys.shape[1]
        places = torch.arange(before, end, device=keys.device)
        if (at := inputs.get("positions")) is not None:
            places = at - positions.first_position(subject)
            end = int(places.max()) + 1
        turns = rotations(subject, self.depth, end)
        assert turns is not None  # it is in `without_rotation`, for as many places
        return _back(keys, turns[places])


def without_rotation(subject: Subject, target: Target, goal: Tensor) -> tuple[Target, Tensor]:
    """Keys rotated back, and ``goal`` [rows, n, F] too, where the target is keys that rotate.

    Any other target stays as it is.
    """
    n = goal.shape[1]
    if target.through != "keys" or target.slip or n > (subject.context or n):
        return target, goal
    if (turns := rotations(subject, target.depth, n)) is None:
        return target, goal
    keys = _back(goal.unflatten(2, (-1, turns.shape[-1])), turns[:n])
    return Unrotated(target.depth, "keys"), keys.flatten(2)


def _back(keys: Tensor, turns: Tensor) -> Tensor:
    """``keys`` [batch, n, heads, width] without their rotations ``turns`` [n, width, width]."""
    return torch.einsum("bnhv,nwv->bnhw", keys.to(turns), turns)


def rotations(subject: Subject, depth: int, n: int) -> Tensor | None:
    """R_p of ``n`` places at least, by which the keys of block ``depth`` differ from place 0.

    Row vectors of all heads are multiplied by them: [places, width, width], orthogonal, float32
    or wider.  None where keys do not rotate or do more than that, and where that cannot be seen.
    """
    every = _rotations(subject)
    turns = every.get(depth)
    if depth not in every or (turns is not None and len(turns) < n):
        places = max(STEP, 1 << (n - 1).bit_length())
        try:
            turns = _estimated(subject, depth, min(places, subject.context or places))
        except (Missing, ValueError, RuntimeError, TypeError, LookupError) as error:
            pass_on(error)
            turns = None
        every[depth] = turns
    return turns


@memo
def _rotations(subject: Subject) -> dict[int, Tensor | None]:
    return {}


def _estimated(subject: Subject, depth: int, n: int) -> Tensor | None:
    """The rotations of ``n`` places, from tokens that each attend to themselves alone.

    The nearest ones in least squares (Schönemann, 1966), as long as they account for all keys.
    """
    able = capabilities.probe(subject)
    if "mask-4d" not in able or "position-ids" not in able:
        return None
    steps = range(STEP, n, STEP)
    between = [place for step in steps if (place := step + BETWEEN) < n]
    places = torch.tensor([*range(min(n, STEP)), *steps, *between, n - 1], device=subject.device)
    keys = _lone(subject, depth, places)
    if not bool(keys.isfinite().all()):
        return None
    own = min(n, STEP) + len(steps)
    left, _, right = torch.linalg.svd(keys[0].T @ keys[:own])
    short, still = (left @ right)[: min(n, STEP)], torch.eye(keys.shape[2]).to(keys)
    long = torch.cat([still[None], (left @ right)[len(short) :]])
    every = torch.arange(n, device=keys.device)
    turns = short[every % STEP] @ long[every // STEP]
    if not bool((relative(keys[0] @ turns[places], keys) <= accepted(subject)).all()):
        return None
    wide = torch.promote_types(subject.dtype, torch.float32)
    return None if torch.allclose(turns, still, atol=STILL) else turns.to(wide)


def _lone(subject: Subject, depth: int, places: Tensor) -> Tensor:
    """Keys of some tokens, of all heads, at ``places`` [n]: [n, keys, width], float64."""
    target, draw = Target(depth, "keys"), torch.Generator().manual_seed(0)
    n = len(places)
    alone = torch.eye(n, dtype=torch.bool, device=subject.device)
    inputs = {
        "mask": masks.additive(alone, subject.dtype),
        "positions": places + positions.first_position(subject),
    }

    def keys(count: int) -> Tensor:
        tokens = torch.randint(subject.vocabulary, (count, 1), generator=draw)
        ids = subject.content(tokens.to(subject.device)).expand(-1, n)
        return target.keys_or_values(subject, ids, **inputs).double()

    heads, width = keys(1).shape[2:]
    return keys(math.ceil(KEYS * width / heads)).transpose(0, 1).flatten(1, 2)
