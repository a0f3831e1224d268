"""Lengths at which a model's computation changes: windows, chunks, convolutions, rotations.

Read from the configuration by the names of its fields.  Only the draws depend on them, so a
superfluous length costs an example but no verdict.
"""

from __future__ import annotations

import re

from assay.harness.models import rotations
from assay.harness.models.memo import memo
from assay.harness.models.subject import Subject

FIELDS = re.compile(
    r".*window.*|.*chunk_size|.*chunk_length|local_attention|.*block_size|.*(d_)?conv(_kernel.*)?"
    r"|conv1d_width|.*L_cache|.*compress_ratio.*|.*topk|floor_scale"
)
"""Names of fields with such a length."""

KERNEL = 64
"""Kernels of linear attention split a prompt into chunks of 64 in every configuration."""


@memo
def steps(subject: Subject) -> list[int]:
    """The lengths at which something changes, ascending, all above 1 and within the context."""
    most = subject.context or 4 * KERNEL
    fields = subject.config.to_dict()
    named = [size for name, size in fields.items() if FIELDS.fullmatch(name)]
    sizes = {size for size in named if isinstance(size, int) and not isinstance(size, bool)}
    sizes |= {subject.window or 0, KERNEL, *rotations.made_for(subject.config)}
    return sorted(size for size in sizes if 1 < size <= most)


def around(subject: Subject, least: int, most: int) -> list[int]:
    """`steps`, and one less and one more than each, from ``least`` to ``most``; ascending."""
    near = {size + off for size in steps(subject) for off in (-1, 0, 1)}
    return sorted(size for size in near if least <= size <= most)
