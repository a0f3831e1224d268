"""What breaks a law, in words, where the rows or a few passes can tell."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import torch
from torch import Tensor

from assay.harness.models.machine.shortage import ENDS
from assay.harness.models.machine.weights import rounding
from assay.harness.models.reference import finiteness
from assay.harness.models.reference.float64 import reference_of
from assay.harness.models.reference.tolerances import TOLERANCES, farthest
from assay.harness.models.subject import Subject
from assay.harness.models.subject.memo import memo
from assay.harness.models.subject.roles import Role
from assay.harness.models.subject.rows import Rows

TOKENS = 6
"""Of a probe's prompt."""

BEYOND_ROUNDING = 100.0
"""Multiple of the dtype's floor from which on a probe's state is wrong: it says where to look."""


def probed(subject: Subject, needs: Collection[str]) -> str:
    """What breaks a law that ``needs`` these capabilities, as a few passes show it; or empty.

    Such as that the model does not read the mask.
    """
    probes = (probe for about, probe in PROBES if not about.isdisjoint(needs))
    return next(filter(None, (probe(subject) for probe in probes)), "")


def extent(
    observed: Rows, exact: Rows, allowed: Mapping[str, float], settled: Tensor | None = None
) -> str:
    """Which rows of a batch, or which states, are wrong where others are right; or empty.

    ``allowed`` is the largest error of a row, by tensor; ``settled`` are the rows that count
    (bool [batch, positions]), or None where all do.
    """

    def wrong(row: slice) -> list[str]:
        part = None if settled is None else settled[row]
        ours, theirs = (rows.map(lambda t: t[row]) for rows in (observed, exact))
        apart = farthest(ours, theirs, part)
        return [
            name for name in allowed if name in apart and not apart[name].error <= allowed[name]
        ]

    batch = len(next(iter(observed.tensors.values())))
    rows = [row for row in range(batch) if wrong(slice(row, row + 1))]
    parts = []
    if len(rows) == 1 < batch:
        parts.append(f"of {batch} rows, row {rows[0]} alone is wrong")
    names, bad = list(allowed), wrong(slice(None))
    right = len(names) - len(bad)
    if 0 < right < len(names) and bad == names[right:]:
        parts.append(f"right up to {names[right - 1]}, wrong from {names[right]} on")
    return "; ".join(parts)


def overflow(subject: Subject) -> str:
    """The token on which the model overflows and its float64 copy does not, in words, or empty.

    Such a model breaks the law of finite numbers, by a finite error, and no other law.
    """
    try:
        where = finiteness.of_vocabulary(subject)
        if where and not finiteness.of_vocabulary(reference_of(subject)):
            return f"the model overflows, at {where}"
    except ENDS:
        return ""  # the law's own error says more
    return ""


def repeats(subject: Subject) -> bool:
    """Whether two passes over one prompt agree within the dtype's floor."""
    try:
        n = min(4, subject.context or 4)
        ids = subject.content(torch.arange(n, device=subject.device)[None])
        once, again = subject.rows(ids), subject.rows(ids)
    except ENDS:  # the exception is its own finding
        return True
    floor = TOLERANCES[rounding(subject.model, subject.dtype)].floor
    return all(apart.error <= floor for apart in farthest(again, once).values())


@memo
def _ignores_mask(subject: Subject) -> str:
    mask = torch.ones(1, TOKENS, dtype=torch.long, device=subject.device)
    hidden = mask.clone()
    hidden[:, : TOKENS // 2] = 0
    ignored = subject.takes(Role.MASK) and _alike(
        lambda: subject.rows(_prompt(subject), mask=mask).last,
        lambda: subject.rows(_prompt(subject), mask=hidden).last,
    )
    name = subject.bound[Role.MASK]
    same = f"the output is the same, bit for bit, with any {name}: the mask is not read"
    return same if ignored else ""


@memo
def _ignores_positions(subject: Subject) -> str:
    positions = torch.arange(TOKENS, device=subject.device)
    ignored = subject.positions_argument is not None and _alike(
        lambda: subject.rows(_prompt(subject), positions=positions),
        lambda: subject.rows(_prompt(subject), positions=positions // 2),
    )
    same = "the output is the same, bit for bit, at any positions: they are not read"
    return same if ignored else ""


@memo
def _ignores_cache(subject: Subject) -> str:
    ids = _prompt(subject)

    def step(prefix: Tensor) -> Rows:
        cache = subject(prefix, keep=True).cache
        return subject.rows(ids[:, -1:], cache=cache)

    ignored = subject.cache_argument is not None and _alike(
        lambda: step(ids[:, :-1]), lambda: step(ids[:, :-1].flip(1))
    )
    same = "a step's output is the same, bit for bit, after any prefix: the cache is not read"
    return same if ignored else ""


@memo
def _from_cache(subject: Subject) -> str:
    """From which state on a cached step is wrong."""
    ids = _prompt(subject)

    def step() -> Rows:
        cache = subject(ids[:, :-1], keep=True).cache
        return subject.rows(ids[:, -1:], cache=cache)

    return _first_wrong(subject, step, lambda: subject.rows(ids).last)


@memo
def _from_padding(subject: Subject) -> str:
    """From which state on a padded row is wrong."""
    ids = _prompt(subject)
    mask = torch.ones_like(ids)
    mask[:, :2] = 0
    counted = (mask.cumsum(1) - 1).clamp(min=0)
    positions = counted if subject.positions_argument else None

    def padded() -> Rows:
        return subject.rows(ids, mask=mask, positions=positions).last

    return _first_wrong(subject, padded, lambda: subject.rows(ids[:, 2:]).last)


def _first_wrong(subject: Subject, one: Callable[[], Rows], other: Callable[[], Rows]) -> str:
    """`extent` of two passes that should agree, but for much more than rounding; or empty."""
    try:
        observed, exact = one(), other()
    except ENDS:
        return ""
    floor = TOLERANCES[rounding(subject.model, subject.dtype)].floor
    return extent(observed, exact, dict.fromkeys(exact.tensors, BEYOND_ROUNDING * floor))


PADDED = frozenset({"padding", "left-padding", "padding-by-mask"})
CACHED = frozenset({"cache", "kv-cache", "cached-generation"})

PROBES: tuple[tuple[frozenset[str], Callable[[Subject], str]], ...] = (
    (PADDED, _ignores_mask),
    (CACHED, _ignores_cache),
    (frozenset({"position-ids"}), _ignores_positions),
    (PADDED, _from_padding),
    (CACHED, _from_cache),
)
"""The capabilities that laws need, and the probes that may tell why they are broken."""


def _prompt(subject: Subject) -> Tensor:
    """Ids of text [1, TOKENS], each another."""
    return subject.content(torch.arange(1, TOKENS + 1, device=subject.device)[None])


def _alike(one: Callable[[], Rows], other: Callable[[], Rows]) -> bool:
    """Whether two passes give the same, bit for bit; False where one of them fails."""
    try:
        ours, theirs = one(), other()
    except ENDS:
        return False
    return all(torch.equal(ours[name], theirs[name]) for name in ours.tensors)
