"""Computes the state of every candidate for the next token, after the prompts recovered so far.

Candidates of one prompt share a pass, each as a branch that attends to the cached prompt and
itself (a 4-D mask), at one position.  Where a model does not take such a mask, or gives other
states under it, every candidate has its own copy of the cache; where that also fails, the model
runs from scratch for each.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from assay.harness.inversion.target import Target
from assay.harness.models import capabilities
from assay.harness.models.capabilities import Missing, caches
from assay.harness.models.machine.shortage import pass_on
from assay.harness.models.reference import precision
from assay.harness.models.reference.tolerances import TOLERANCES, distance
from assay.harness.models.subject import Subject, masks, positions
from assay.harness.models.subject.memo import memo
from assay.harness.operations import cache_operations

ACCEPTED = 4.0
"""Multiple of the floor of the dtype's tolerance within which a state counts as the target's."""

AT_ONCE = 512
"""Candidates in one pass, over all prompts: more would waste attention on each other."""

COMPARED = 16
"""Candidates that are compared with whole prompts, where a way to compute many is tested."""


class TimeUp(Exception):
    """A search has reached its time limit."""


EPSILON = torch.finfo(torch.float64).tiny


def accepted(subject: Subject) -> float:
    """The relative distance up to which a state counts as the same."""
    return ACCEPTED * TOLERANCES[precision.working(subject)].floor


def relative(states: Tensor, goal: Tensor) -> Tensor:
    """How far ``states`` are from ``goal`` [..., F], relative to its length; NaN counts as ∞."""
    size = torch.linalg.vector_norm(goal.double(), dim=-1).clamp_min(EPSILON)
    off = torch.linalg.vector_norm(states.double() - goal.double(), dim=-1)
    return off.nan_to_num(nan=torch.inf, posinf=torch.inf) / size


class Prefixes:
    """The known beginnings of prompts, ``ids`` [rows, i], on which candidates are tried.

    ``passes`` counts those through the model; none begins after ``until`` (in seconds of
    `time.perf_counter`): it raises `TimeUp`.

    Without a ``cache``, the model's abilities decide ``cache`` and ``copied``.
    """

    def __init__(
        self,
        subject: Subject,
        target: Target,
        rows: int,
        cache: Any = None,
        copied: bool = False,
        until: float = math.inf,
    ) -> None:
        self.subject, self.target, self.until = subject, target, until
        self.ids = torch.empty(rows, 0, dtype=torch.long, device=subject.device)
        if cache is None and not target.slip:
            if branches(subject):
                cache = caches.make(subject, "dynamic", rows, 0)
            elif target.depth and copies(subject):  # a cache that no block fills has no length
                cache, copied = cache_operations.growing(subject), True
        self.cache: Any = cache
        self.copied = copied
        self.passes = 0
        # Branches would attend beyond the window, and not every cache slides.
        self._reach = subject.window or float("inf")

    def __len__(self) -> int:
        """The number of known tokens."""
        return self.ids.shape[1]

    def append(self, ids: Tensor) -> None:
        """Append the next token of every prompt: [rows]."""
        if self.copied and self.cache is not None:
            self._output(ids[:, None], cache=self.cache)
        elif self.cache is not None:
            self._run(ids[:, None], self.cache)
        self.ids = torch.cat([self.ids, ids[:, None]], dim=1)

    def extend(self, ids: Tensor) -> Tensor | None:
        """Append some tokens to every prompt in one pass: [rows, k].

        Returns their states [rows, k, F]; None without a cache, or without tokens.
        """
        states = None
        if ids.shape[1] and self.cache is not None:
            states = self._output(ids, cache=self.cache)
        self.ids = torch.cat([self.ids, ids], dim=1)
        return states

    def crop(self, n: int) -> None:
        """Keep the first ``n`` tokens, where prompts are `branching`."""
        if n < len(self):
            self.cache.crop(n - len(self))  # so many fewer
            self.ids = self.ids[:, :n]

    def misled(self, ids: Tensor) -> bool:
        """Whether branches are wrong after these prompts; if so, they are not used again.

        The test uses ``ids`` [rows] as the next tokens, and the few ids after each.
        """
        if self.cache is None or len(self) >= self._reach:
            return False
        few = torch.arange(4, device=ids.device)
        few = (ids[:, None] + few) % self.subject.vocabulary
        branch = torch.cat([states for _, states in self.states(few)], dim=1)
        plain = self._one_by_one(few, self.ids)
        if bool((distance(branch, plain) <= accepted(self.subject)).all()):
            return False
        self.cache = None
        return True

    def states(
        self, candidates: Tensor, rows: Tensor | None = None
    ) -> Iterator[tuple[int, Tensor]]:
        """The states of ``candidates`` [k, C] after k prompts, some at a time.

        Yields the index of the first candidate, and states [k, some, features].  ``rows`` [k]
        selects the prompts (default: all).
        """
        if rows is None:
            rows = torch.arange(len(self.ids), device=self.ids.device)
        run: Callable[[Tensor], Tensor]
        width = max(1, AT_ONCE // max(1, len(rows)))
        if self.cache is None or len(self) >= self._reach:
            run = partial(self._one_by_one, prefixes=self.ids[rows])
            width = max(1, AT_ONCE // max(1, len(rows) * (len(self) + 1)))
        elif self.copied:
            run = partial(self._on_copies, rows=rows)
        else:
            past = copy.deepcopy(self.cache)
            if len(self) and len(rows) < len(self.ids):
                past.batch_select_indices(rows)
            run, width = (lambda some: self._run(some, copy.deepcopy(past))), max(8, width)
        for first in range(0, candidates.shape[1], width):
            yield first, run(candidates[:, first : first + width])

    def branching(self, n: int) -> bool:
        """Whether candidates can branch off from any place of prompts of ``n`` tokens."""
        return self.cache is not None and not self.copied and n < self._reach

    def states_at(self, places: Tensor, candidates: Tensor) -> Iterator[tuple[int, Tensor]]:
        """The states of ``candidates`` [rows, C] at ``places`` [C] of the prompts so far.

        Each is the last token of a prompt: it follows those before its place.  Only if the prompts
        are `branching`.  Yields the first candidate's index, and states [rows, some, features].
        """
        width = max(8, AT_ONCE // max(1, len(candidates)))
        for first in range(0, candidates.shape[1], width):
            some = slice(first, first + width)
            cache = copy.deepcopy(self.cache)
            yield first, self._run(candidates[:, some], cache, places[some])

    def _output(self, ids: Tensor, **inputs: Any) -> Tensor:
        if time.perf_counter() > self.until:
            raise TimeUp
        self.passes += 1
        return self.target.output(self.subject, ids, **inputs)

    def _run(self, ids: Tensor, cache: Any, places: Tensor | None = None) -> Tensor:
        """``ids`` [k, C] side by side, at ``places`` [C] (default: the next place)."""
        count = ids.shape[1]
        if places is None:
            places = torch.full((count,), len(self), device=ids.device)
        alone = torch.eye(count, dtype=torch.bool, device=ids.device)
        past = torch.arange(len(self), device=ids.device) < places[:, None]
        mask = masks.additive(torch.cat([past, alone], dim=1), self.subject.dtype)
        at = positions.first_position(self.subject) + places
        return self._output(ids, positions=at, mask=mask, cache=cache)

    def _on_copies(self, candidates: Tensor, rows: Tensor) -> Tensor:
        """Every candidate on a copy of its prompt's cache: [k, C, features]."""
        k, count = candidates.shape
        cache = copy.deepcopy(self.cache)
        if len(self):
            cache.reorder_cache(rows.repeat_interleave(count))
        last = self._output(candidates.reshape(-1, 1), cache=cache)[:, -1]
        return last.reshape(k, count, -1)

    def _one_by_one(self, candidates: Tensor, prefixes: Tensor) -> Tensor:
        """Every candidate after its whole prompt: [k, C, features]."""
        k, count = candidates.shape
        prefixes = prefixes.repeat_interleave(count, 0)
        whole = torch.cat([prefixes, candidates.reshape(-1, 1)], dim=1)
        return self._output(whole)[:, -1].reshape(k, count, -1)


@memo
def branches(subject: Subject) -> bool:
    """Whether candidates can share a pass as branches: tested on a prompt of three tokens."""
    able = capabilities.probe(subject)
    needed = ("kv-cache", "mask-4d", "position-ids", "blocks")
    if any(name not in able for name in needed) or subject.is_encoder_decoder:
        return False
    try:
        cache = caches.make(subject, "dynamic", 1, 0)
    except Missing:  # the model's own cache keeps more than keys and values
        return False
    return (subject.window or 4) >= 4 and _right(subject, cache)


@memo
def copies(subject: Subject) -> bool:
    """Whether each candidate can have its own copy of the cache: tested in the same way."""
    able = capabilities.probe(subject)
    if "cache" not in able or "blocks" not in able:
        return False
    try:
        cache = cache_operations.growing(subject)
    except (Missing, TypeError, ValueError, AttributeError) as error:
        pass_on(error)
        return False
    return _right(subject, cache, copied=True)


def _right(subject: Subject, cache: Any, copied: bool = False) -> bool:
    """Whether candidates on this kind of ``cache`` have the states of whole prompts."""
    if (subject.context or 4) < 4:
        return False
    ids = subject.content(torch.arange(3, device=subject.device)[None] * 5 + 3)
    # Some have buffers as long as their position embedding: more candidates must also fit.
    table = positions.position_table(subject)
    most = min(subject.vocabulary, AT_ONCE)
    count = min(4 if table is None else len(table.weight) + 1, most)
    candidates = subject.content(torch.arange(count, device=subject.device)[None] * 11 + 1)
    some = torch.linspace(0, count - 1, min(count, COMPARED), device=subject.device).long()
    target = Target(subject.layers)
    prefixes = Prefixes(subject, target, 1, cache, copied)
    try:
        for token in ids.T:
            prefixes.append(token)
        side_by_side = torch.cat([states for _, states in prefixes.states(candidates)], dim=1)
    except (Missing, ValueError, RuntimeError, TypeError, AttributeError, IndexError) as error:
        pass_on(error)
        return False
    alone = torch.cat([ids.expand(len(some), -1), candidates.T[some]], dim=1)
    plain = target.output(subject, alone)[:, -1]
    return bool((distance(side_by_side[:, some], plain[None]) <= accepted(subject)).all())
