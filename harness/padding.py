"""Ragged batches: prompts of unlike lengths side by side, padded to one."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from harness import capabilities, positions
from harness.rows import Rows
from harness.subject import Subject


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

    def of(self, rows: Rows, row: int) -> Rows:
        """The content's rows of one prompt, [1, its length, features]."""
        size, n = self.lengths[row], self.ids.shape[1]
        place = slice(n - size, n) if self.left else slice(0, size)
        return rows.map(lambda tensor: tensor[row : row + 1, place])


def ragged(subject: Subject, ids: Tensor, lengths: list[int]) -> Ragged:
    """The last ``lengths[i]`` tokens of each row of ``ids`` [batch, n], padded to n.

    On the left, as for generation, with explicit positions where the model takes them; on the
    right where it has no ``left-padding``; encoders are padded there too, as they were trained.
    """
    left = "causal" in capabilities.of(subject) and "left-padding" in capabilities.of(subject)
    n = ids.shape[1]
    padding = getattr(subject.config, "pad_token_id", None) or 0
    places = torch.arange(n, device=ids.device)
    kept = torch.tensor(lengths, device=ids.device)[:, None]
    content = places >= n - kept if left else places < kept
    moved = [row.roll(size) for row, size in zip(ids, lengths, strict=True)]
    shifted = ids if left else torch.stack(moved)
    padded = torch.where(content, shifted, padding)
    explicit = None
    if left and "position-ids" in capabilities.of(subject):
        start = positions.first_position(subject)
        explicit = (content.long().cumsum(1) - 1).clamp_min(0) + start
    return Ragged(padded, content.long(), explicit, lengths, left)
