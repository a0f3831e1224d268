"""Lengths at which a model's computation changes: windows, chunks, convolutions, rotations.

Read from the configuration by the names of its fields.  Only the draws depend on them, so a
superfluous length costs an example but no verdict.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from assay.harness.models.subject import lengths, rotations
from assay.harness.models.subject.memo import memo

if TYPE_CHECKING:
    from assay.harness.models.subject import Subject

FIELDS = re.compile(
    r".*window.*|.*chunk_size|.*chunk_length|local_attention|.*block_size|.*(d_)?conv(_kernel.*)?"
    r"|conv1d_width|.*L_cache|.*compress_ratio.*|.*topk|floor_scale"
    r"|original_max_position_embeddings"
)
"""Names of fields with such a length."""

KERNEL = 64
"""Kernels of linear attention split a prompt into chunks of 64 in every configuration."""


PAST = 16
"""Tokens beyond an edge, at most: a window has moved on, and a chunk has begun."""


@memo
def named(subject: Subject) -> dict[str, int]:
    """The lengths at which something changes, by the names of their fields."""
    fields = {n: size for n, size in subject.config.to_dict().items() if FIELDS.fullmatch(n)}
    if subject.window:
        fields |= {} if subject.window in fields.values() else {"window": subject.window}
    for length in rotations.made_for(subject.config):
        fields |= {"length that the rotation was made for": length}
    if any("linear" in str(kind) for kind in getattr(subject.config, "layer_types", None) or ()):
        fields |= {"chunk of linear attention": KERNEL}
    return {n: size for n, size in fields.items() if type(size) is int and size > 1}


@memo
def steps(subject: Subject) -> list[int]:
    """The lengths at which something changes, ascending, all above 1 and within the context."""
    most = subject.context or 4 * KERNEL
    return sorted(size for size in {*named(subject).values(), KERNEL} if size <= most)


def beyond(
    subject: Subject, room: int = 0, context: int | None = None, least: int = 0
) -> int | None:
    """The length of a prompt past every edge that one can pass; None where there is none.

    ``room`` tokens of the ``context``, or of the subject's, stay free.  A prompt of a large model
    may be shorter than its edges (`lengths.farthest`).  With ``least`` it has so many tokens or
    more, edges or not, as far as the context reaches.
    """
    most = _most(subject, room, context)
    edge = _last(subject, most) or 0
    length = int(min(most, max(least, edge + min(edge, PAST))))
    return length if length > 0 else None


def before(subject: Subject, room: int, context: int | None = None) -> int | None:
    """The length of a prompt that passes the last of these edges while it is continued by
    ``room`` tokens; None where there is none.
    """
    edge = _last(subject, _most(subject, room, context))
    return None if edge is None else max(1, edge - room // 2)


def _most(subject: Subject, room: int, context: int | None) -> float:
    return min(lengths.farthest(subject), (context or subject.context or math.inf) - room)


def _last(subject: Subject, most: float) -> int | None:
    return max((size for size in named(subject).values() if size < most), default=None)


def passed(subject: Subject, tokens: int) -> tuple[dict[str, int], dict[str, int]]:
    """The edges that a prompt of so many tokens passes, and those that a longer one could."""
    most = max(subject.context or math.inf, tokens)
    able = {name: size for name, size in named(subject).items() if size < most}
    beyond_it = {name: size for name, size in able.items() if size >= tokens}
    return {name: size for name, size in able.items() if size < tokens}, beyond_it


def around(subject: Subject, least: int, most: int) -> list[int]:
    """`steps`, and one less and one more than each, from ``least`` to ``most``; ascending."""
    near = {size + off for size in steps(subject) for off in (-1, 0, 1)}
    return sorted(size for size in near if least <= size <= most)
