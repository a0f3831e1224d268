"""Inverts less than all states in order: the states in unknown order, or the last state alone."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from assay.harness.inversion import Inversion
from assay.harness.inversion.candidates import accepted
from assay.harness.inversion.descent import check_target
from assay.harness.inversion.head import without_head
from assay.harness.inversion.last_state import Probes, probes
from assay.harness.inversion.set_up import drawn, linear_map, text_of
from assay.harness.inversion.shuffled import unshuffle
from assay.harness.inversion.target import Target
from assay.harness.inversion.token_by_token import SearchResult
from assay.harness.models import capabilities
from assay.harness.models.reference.tolerances import distance
from assay.harness.models.subject import Subject
from assay.harness.results.errors import BadInput

GIVEN = ("all", "shuffled", "last")
"""What is known of an output: the states of all positions in order, the same in unknown order, or
that of the last position."""

FITTED = 2048
"""Prompts that the probes of a last state are fitted to."""


def from_shuffled(subject: Subject, target: Target, states: Tensor) -> tuple[Inversion, Tensor]:
    """The prompts with ``states`` [rows, n, f] in some order, and that order [rows, n].

    The order names, for each position, the one of ``states`` that is verified there.  Raises
    `BadInput` for a model that is not causal.
    """
    check_target(subject, target, states)
    if (why := capabilities.probe(subject).why_missing("causal")) is not None:
        raise BadInput(f"shuffled states: need a causal model ({why})")
    began = time.perf_counter()
    set_up = linear_map(subject, target, states.shape[1]).states
    took = time.perf_counter() - began
    found = unshuffle(subject, target, states)
    rows, n = found.ids.shape
    result = SearchResult.blank(rows, n, found.ids.device)
    result.ids, result.verified = found.ids, found.verified
    goal = states.gather(1, found.order[..., None].expand_as(states))
    result.distances = distance(target.output(subject, found.ids), goal).double()
    result.passes += found.passes
    result.set_up, result.set_up_seconds = set_up, took
    return _noted(Inversion(**vars(result), method="exact")), found.order


def from_last(subject: Subject, target: Target, last: Tensor, n: int) -> Inversion:
    """The prompts of ``n`` tokens that linear probes read off their ``last`` states [rows, f].

    Few tokens are right.  A prompt is verified, all of it, where its own last state is that given.
    Raises `BadInput` for logits that do not determine the state.
    """
    check_target(subject, target, last[:, None])
    target, goal = without_head(subject, target, last[:, None])
    began = time.perf_counter()
    probe = fitted(subject, target, n)
    took = time.perf_counter() - began
    ids = probe.decode(goal[:, 0])
    result = SearchResult.blank(len(ids), n, ids.device)
    result.ids = ids
    off = distance(target.output(subject, ids)[:, -1:], goal).double()
    result.distances = off.expand(-1, n).clone()
    result.verified = result.distances <= accepted(subject)
    result.passes += 1
    result.set_up, result.set_up_seconds = FITTED * n, took
    return _noted(Inversion(**vars(result), method="exact"))


def fitted(subject: Subject, target: Target, n: int) -> Probes:
    """Probes fitted to prompts of ``n`` tokens: text, where there is a tokenizer, and random."""
    draw = torch.Generator().manual_seed(4)
    return probes(subject, target, drawn(subject, text_of(subject), FITTED, n, draw))


def _noted(result: Inversion) -> Inversion:
    if missed := int((~result.verified).sum()):
        result.notes.append(f"{missed} of {result.ids.numel()} tokens are not verified")
    return result
