"""Recovers a model's input from its output: three methods behind one call (INVERSION).

    target = Target(depth=2)
    wanted = target.output(subject, ids)              # [rows, n, features]
    found = invert(subject, target, wanted)       # found.ids == ids, each verified

``exact``       ranks tokens, tries the likeliest and verifies them (`search`);
``exhaustive``  tries every token at every position: the slow oracle;
``descent``     descends on the distance of the outputs, and decodes (`descent`): the only one for
                models that are not causal, and the one that document 003 writes about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from assay.harness.checking.draws import Draws
from assay.harness.models import capabilities
from assay.harness.models.memo import memo
from assay.harness.models.subject import Subject
from assay.harness.models.tolerances import distance
from assay.harness.operations import decoding
from assay.harness.operations.choices import check_choice
from assay.harness.operations.inversion import search, start
from assay.harness.operations.inversion.candidates import accepted
from assay.harness.operations.inversion.descent import Tell as TellStep
from assay.harness.operations.inversion.descent import check_target, descend
from assay.harness.operations.inversion.head import without_head
from assay.harness.operations.inversion.rule import Rule as Rule
from assay.harness.operations.inversion.search import Found
from assay.harness.operations.inversion.search import Tell as TellPlace
from assay.harness.operations.inversion.target import Target as Target
from assay.harness.operations.inversion.target import embedded
from assay.harness.results.errors import BadInput

METHODS = ("exact", "exhaustive", "descent")

DECODERS = ("nearest", "pseudo-inverse")

STARTS = {"scaled": start.scaled, "documented": start.documented}
"""What a descent may begin from: `start` says which noise that is."""

RATE = 0.3
"""The step size of a descent, in units of `start.unit`, where none is given."""


@dataclass
class Inverted(Found):
    """The inputs that were recovered, by which ``method``; see `search.Found` for most fields.

    ``any_length`` names rows of which any number of repetitions ends in the same state, as without
    absolute positions.  ``embeddings`` [rows, n, d] are where a descent ended.  ``said`` is what a
    user should know.
    """

    method: str = ""
    any_length: list[int] = field(default_factory=list)
    embeddings: Tensor | None = None
    said: list[str] = field(default_factory=list)


def invert(
    subject: Subject,
    target: Target,
    wanted: Tensor,
    method: str = "exact",
    *,
    decoder: str = "nearest",
    rule: Rule | None = None,
    rate: float = RATE,
    seed: int = 0,
    begin: str = "scaled",
    watch: Sequence[int] = (),
    at_step: TellStep | None = None,
    at_place: TellPlace | None = None,
) -> Inverted:
    """The prompts whose ``target`` is ``wanted`` [rows, n, features].

    ``decoder``, ``rule``, ``rate`` (in units of `start.unit`), ``begin`` and ``seed`` (the start:
    one of `STARTS`) belong to ``descent``, which tells ``at_step`` of the steps in ``watch``; the
    others tell ``at_place`` of every position.  A head of full column rank is undone first.
    Raises `BadInput` for what is no output of the subject, and where the subject cannot be
    inverted by ``method``.
    """
    check_choice("method", method, METHODS)
    check_choice("decoder", decoder, DECODERS)
    check_choice("start", begin, STARTS)
    table = capabilities.probe(subject).why_missing("embedding-table")
    if table is not None:
        raise BadInput(f"{method}: requires an embedding matrix ({table})")
    check_target(subject, target, wanted)
    said: list[str] = []
    given, outputs = target, wanted
    try:
        target, wanted = without_head(subject, target, wanted)
    except BadInput as error:
        said.append(f"{error}; the logits themselves are compared")
    if method == "descent":
        first = _first(subject, target, wanted, begin, seed)
        how = rule or Rule()
        found = _by_descent(subject, target, wanted, first, decoder, how, rate, watch, at_step)
    else:
        found = _by_search(subject, target, wanted, method, at_place)
    if target is not given:
        # What the head hardly shows is lost in rounding, and the states are off by as much.
        found.distances = distance(given.output(subject, found.ids), outputs)
        found.verified = found.distances <= accepted(subject)
    found.said = said + found.said
    found.any_length = [
        row for row in range(len(wanted)) if _any_length(subject, target, found, row)
    ]
    if missed := int((~found.verified).sum()):
        found.said.append(f"{missed} of {found.ids.numel()} tokens are not verified")
    return found


def _by_search(
    subject: Subject, target: Target, wanted: Tensor, method: str, tell: TellPlace | None
) -> Inverted:
    if (why := capabilities.probe(subject).why_missing("causal")) is not None:
        raise BadInput(f"{method}: needs a causal model ({why}); descent does not")
    run = search.exact if method == "exact" else search.exhaustive
    found = run(subject, target, wanted, tell)
    return Inverted(**vars(found), method=method)


def _by_descent(
    subject: Subject,
    target: Target,
    wanted: Tensor,
    first: Tensor,
    decoder: str,
    rule: Rule,
    rate: float,
    watch: Sequence[int],
    tell: TellStep | None,
) -> Inverted:
    if (why := capabilities.probe(subject).why_missing("free-embeddings")) is not None:
        raise BadInput(f"descent: needs a model that takes any embeddings ({why})")
    size = rate * start.unit(subject, target, wanted, first, rule)
    rates = torch.full((len(first),), size, device=first.device)
    made = descend(subject, target, wanted, first, rates, rule, watch=watch, tell=tell)
    ids = decode(subject, made.embeddings, decoder)
    found, others = _same(subject, target, ids, wanted)
    tried, verified = torch.zeros_like(ids), found <= accepted(subject)
    recovered = Inverted(ids, verified, found, tried, others, method="descent", said=made.said)
    recovered.embeddings = made.embeddings
    return recovered


def _first(subject: Subject, target: Target, wanted: Tensor, begin: str, seed: int) -> Tensor:
    """Where a descent to ``wanted`` [rows, n, features] begins: [rows, n, d].

    Drawn by name: numbers of the bare seed may be those that a model was made of.
    """
    rows, n, _ = wanted.shape
    normal = Draws(seed, "inversion", range(rows)).normal(n, subject.hidden, purpose="start")
    return STARTS[begin](subject, normal, target.slip)


def decode(subject: Subject, embeddings: Tensor, decoder: str = "nearest") -> Tensor:
    """The tokens [...] of embeddings [..., d] before positions."""
    if decoder == "nearest":
        return decoding.nearest(embedded(subject), embeddings)
    return pseudo_inverse(subject).decode(embeddings)


def likeliest(
    subject: Subject, embeddings: Tensor, count: int, decoder: str = "nearest"
) -> Tensor:
    """The ``count`` tokens that come first for embeddings [..., d]: [..., count], best first."""
    if decoder == "nearest":
        return decoding.nearest_few(embedded(subject), embeddings, count)
    return pseudo_inverse(subject).top(embeddings, count)


def ranks(subject: Subject, embeddings: Tensor, ids: Tensor, decoder: str = "nearest") -> Tensor:
    """The ranks of tokens ``ids`` [...] for embeddings [..., d], 1 for what comes first: [...]."""
    if decoder == "nearest":
        return decoding.ranks_by_nearness(embedded(subject), embeddings, ids)
    return pseudo_inverse(subject).ranks(embeddings, ids)


@memo
def pseudo_inverse(subject: Subject) -> decoding.PseudoInverse:
    """The pseudo-inverse of what tokens are embedded as; in the factor of a factorised one."""
    return decoding.PseudoInverse.of(embedded(subject))


@memo
def _groups(subject: Subject) -> dict[int, list[int]]:
    """For each token whose row stands in the table more than once: all that have it."""
    groups = decoding.duplicates(embedded(subject))
    return {token: group for group in groups for token in group}


def _same(
    subject: Subject, target: Target, ids: Tensor, wanted: Tensor
) -> tuple[Tensor, dict[tuple[int, int], list[int]]]:
    """How far the output of ``ids`` is from the wanted one [rows, n], and tokens of equal rows."""
    off = distance(target.output(subject, ids), wanted)
    others = {
        (row, place): _groups(subject)[token]
        for row, tokens in enumerate(ids.tolist())
        for place, token in enumerate(tokens)
        if token in _groups(subject)
    }
    return off, others


def _any_length(subject: Subject, target: Target, found: Inverted, row: int) -> bool:
    """Whether the found prompt repeats one token, and more repetitions end in the same state."""
    ids = found.ids[row : row + 1]
    causal = "causal" in capabilities.probe(subject)
    if not causal or not bool(found.verified[row].all()) or len(set(ids[0].tolist())) > 1:
        return False
    longer = torch.cat([ids, ids[:, :1]], dim=1)
    if subject.context is not None and longer.shape[1] > subject.context:
        return False
    ends = [target.output(subject, each)[:, -1:] for each in (ids, longer)]
    return bool(distance(ends[1], ends[0]).max() <= accepted(subject))
