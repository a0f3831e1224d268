"""Pads prompts of different lengths into one batch, to compare it with each prompt alone."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from assay.harness.checking.check import Check
from assay.harness.models import capabilities
from assay.harness.models.subject import Subject, positions
from assay.harness.models.subject.rows import Rows


@dataclass(frozen=True)
class Ragged:
    """Padded ``ids`` and their ``mask`` (1 for content) [batch, n], and explicit ``positions``
    [batch, n] or None; ``lengths`` of the content, ``left`` if padding comes before it.
    """

    ids: Tensor
    mask: Tensor
    positions: Tensor | None
    lengths: list[int]
    left: bool

    @property
    def arguments(self) -> dict[str, Any]:
        """What a pass over the batch is given beside its ids."""
        where = {} if self.positions is None else {"positions": self.positions}
        return {"mask": self.mask, **where}

    def content(self, rows: Rows, row: int) -> Rows:
        """The content's rows of one prompt, [1, its length, features]."""
        size, n = self.lengths[row], self.ids.shape[1]
        place = slice(n - size, n) if self.left else slice(0, size)
        return rows.map(lambda tensor: tensor[row : row + 1, place])


def ragged(
    subject: Subject,
    ids: Tensor,
    lengths: list[int],
    left: bool | None = None,
    explicit: bool = True,
) -> Ragged:
    """The last ``lengths[i]`` tokens of each row of ``ids`` [batch, n], padded to n.

    On the ``left``, as for generation, with ``explicit`` positions where the model takes them; on
    the right without the capability ``left-padding``, as encoders are trained.
    """
    if left is None:
        able = capabilities.probe(subject)
        left = "causal" in able and "left-padding" in able
    n = ids.shape[1]
    padding = getattr(subject.config, "pad_token_id", None) or 0
    places = torch.arange(n, device=ids.device)
    sizes = torch.tensor(lengths, device=ids.device)[:, None]
    content = places >= n - sizes if left else places < sizes
    moved = [row.roll(size) for row, size in zip(ids, lengths, strict=True)]
    shifted = ids if left else torch.stack(moved)
    padded = torch.where(content, shifted, padding)
    where = None
    if left and explicit and "position-ids" in capabilities.probe(subject):
        start = positions.first_position(subject)
        where = (content.long().cumsum(1) - 1).clamp_min(0) + start
    return Ragged(padded, content.long(), where, lengths, left)


def samples(ids: Tensor, batch: Ragged) -> list[Tensor]:
    """The ids [1, its length] of each prompt of a padded batch that was made of ``ids``."""
    return [ids[row : row + 1, -size:] for row, size in enumerate(batch.lengths)]


def each_alone(
    check: Check,
    ids: Tensor,
    batch: Ragged,
    rows: Rows,
    states: bool = True,
    elsewhere: Callable[[], Sequence[Rows]] = tuple,
) -> None:
    """Compare the ``rows`` of a padded batch, cut from ``ids`` [batch, n], with each prompt alone.

    ``elsewhere`` returns the ``rows`` as other machines may round them (`Reference.examining`).
    The control is a neighbour's row in place of its own.
    """
    __tracebackhide__ = True
    for row, alone in enumerate(samples(ids, batch)):
        content = functools.partial(batch.content, row=row)
        moved = functools.partial(_all_content, content, elsewhere)
        expected = check.reference(functools.partial(Subject.rows, ids=alone, states=states))
        expected = expected.examining(content(rows), moved)
        check.same(expected, content(rows))
        if len(ids) > 1:
            check.rejects(expected, content(rows.map(lambda t: t.roll(1, 0))))


def _all_content(
    content: Callable[[Rows], Rows], elsewhere: Callable[[], Sequence[Rows]]
) -> list[Rows]:
    return [content(rows) for rows in elsewhere()]


def require_mask_of_past(subject: Subject, kind: str) -> None:
    """Raise `Missing` unless the model takes a mask of past and present with a cache of ``kind``.

    ``kind`` is ``default`` or ``static``.
    """
    static = "static-" if kind == "static" else ""
    capabilities.require(subject, f"mask-beside-{static}cache")
