"""Four methods of inversion behind one call.

``exact``       guesses whole prompts, and verifies them in few passes (`whole_prompts`);
``token-by-token``  ranks tokens at each position, and tries the likeliest;
``exhaustive``  tries every token at every position: the slow reference method;
``descent``     descends on the distance of the outputs, and decodes (`descent`): the only one for
                models that are not causal, and the method of document 003.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from assay.harness.checking.draws import Draws
from assay.harness.inversion import decoding, start, token_by_token, whole_prompts
from assay.harness.inversion.batch import Rule
from assay.harness.inversion.candidates import accepted
from assay.harness.inversion.descent import Tell as TellStep
from assay.harness.inversion.descent import check_target, descend
from assay.harness.inversion.target import Target, embedded, without_head
from assay.harness.inversion.token_by_token import SearchResult, Tell
from assay.harness.models import capabilities
from assay.harness.models.reference.tolerances import distance
from assay.harness.models.subject import Subject
from assay.harness.models.subject.memo import memo
from assay.harness.operations.choices import check_choice
from assay.harness.operations.equal_rows import duplicates
from assay.harness.results.errors import BadInput

METHODS = ("exact", "token-by-token", "exhaustive", "descent")

DECODERS = ("nearest", "pseudo-inverse")

STARTS = {"scaled": start.scaled, "documented": start.documented}
"""The starts of a descent: `start` defines their noise."""

RATE = 0.3
"""The default learning rate of a descent, in units of `start.unit`."""


@dataclass
class Inversion(SearchResult):
    """The recovered inputs, and the ``method``; see `token_by_token.SearchResult` for most fields.

    ``any_length`` names rows that end in the same state after any number of repetitions, as
    without absolute positions.  ``embeddings`` [rows, n, d] are the end of a descent.  ``notes``
    are for the user.
    """

    method: str = ""
    any_length: list[int] = field(default_factory=list)
    embeddings: Tensor | None = None
    notes: list[str] = field(default_factory=list)


def invert(
    subject: Subject,
    target: Target,
    goal: Tensor,
    method: str = "exact",
    *,
    decoder: str = "nearest",
    rule: Rule | None = None,
    rate: float = RATE,
    seed: int = 0,
    begin: str = "scaled",
    watch: Sequence[int] = (),
    at_step: TellStep | None = None,
    tell: Tell | None = None,
    lengths: Sequence[int] | None = None,
    keep: Path | None = None,
    limit: float = math.inf,
) -> Inversion:
    """The prompts whose ``target`` is ``goal`` [rows, n, features].

    ``decoder``, ``rule``, ``rate`` (in units of `start.unit`), ``begin`` and ``seed`` (the start:
    one of `STARTS`) belong to ``descent``, which calls ``at_step`` after the steps in ``watch``.
    ``exact`` takes prompts of ``lengths`` where they are unlike (``goal`` may be any finite
    numbers beyond them), a folder to ``keep`` what it learns of the model, and a ``limit`` in
    seconds after its set-up.  It calls ``tell`` after its guess and every pass, and the other
    searches after every position.  A head of full column rank is undone first.  Raises `BadInput`
    where ``goal`` is not an output of the subject, and where ``method`` cannot invert it.
    """
    check_choice("method", method, METHODS)
    check_choice("decoder", decoder, DECODERS)
    check_choice("start", begin, STARTS)
    table = capabilities.probe(subject).why_missing("embedding-table")
    if table is not None:
        raise BadInput(f"{method}: requires an embedding matrix ({table})")
    check_target(subject, target, goal)
    if lengths is not None:
        _check_lengths(method, goal, lengths)
    notes: list[str] = []
    original, outputs = target, goal
    try:
        target, goal = without_head(subject, target, goal)
    except BadInput as error:
        notes.append(f"{error}; the logits themselves are compared")
    if method == "descent":
        first = STARTS[begin](subject, _normal(subject, goal, seed), target.slip)
        rule = rule or Rule()
        result = _by_descent(subject, target, goal, first, decoder, rule, rate, watch, at_step)
    else:
        result = _by_search(subject, target, goal, method, tell, lengths, keep, limit)
    if target is not original:
        # Rounding loses what the head almost hides, and the states are off by as much.
        result.distances = distance(original.output(subject, result.ids), outputs)
        for row, length in enumerate(lengths or []):
            result.distances[row, length:] = 0
        result.verified = result.distances <= accepted(subject)
    if result.ended:
        notes.append(f"the search reached its limit of {limit:g} s")
    result.notes = notes + result.notes
    result.any_length = [
        row for row in range(len(goal)) if _any_length(subject, target, result, row)
    ]
    if missed := int((~result.verified).sum()):
        result.notes.append(f"{missed} of {result.ids.numel()} tokens are not verified")
    return result


def _check_lengths(method: str, goal: Tensor, lengths: Sequence[int]) -> None:
    """Raise `BadInput` where ``lengths`` are not those of the rows of ``goal`` [rows, n, f]."""
    if method != "exact":
        raise BadInput(f"{method}: inverts prompts of one length together; exact does of several")
    rows, n = goal.shape[:2]
    if len(lengths) != rows or not all(1 <= length <= n for length in lengths):
        raise BadInput(f"lengths: {rows} numbers from 1 to {n} are needed, not {[*lengths]}")


def _by_search(
    subject: Subject,
    target: Target,
    goal: Tensor,
    method: str,
    tell: Tell | None,
    lengths: Sequence[int] | None,
    keep: Path | None,
    limit: float,
) -> Inversion:
    if (why := capabilities.probe(subject).why_missing("causal")) is not None:
        raise BadInput(f"{method}: needs a causal model ({why}); descent does not")
    if method == "exact":
        result = whole_prompts.exact(subject, target, goal, tell, lengths, keep, limit)
    else:
        ranks_first = method == "token-by-token"
        search = token_by_token.ranked if ranks_first else token_by_token.exhaustive
        result = search(subject, target, goal, tell)
    return Inversion(**vars(result), method=method)


def _by_descent(
    subject: Subject,
    target: Target,
    goal: Tensor,
    first: Tensor,
    decoder: str,
    rule: Rule,
    rate: float,
    watch: Sequence[int],
    tell: TellStep | None,
) -> Inversion:
    if (why := capabilities.probe(subject).why_missing("free-embeddings")) is not None:
        raise BadInput(f"descent: needs a model that takes any embeddings ({why})")
    size = rate * start.unit(subject, target, goal, first, rule)
    rates = torch.full((len(first),), size, device=first.device)
    descent = descend(subject, target, goal, first, rates, rule, watch=watch, tell=tell)
    ids = decode(subject, descent.embeddings, decoder)
    rows, n = ids.shape
    result = Inversion(**vars(SearchResult.blank(rows, n, ids.device)), method="descent")
    result.ids, result.distances = ids, distance(target.output(subject, ids), goal)
    result.verified = result.distances <= accepted(subject)
    result.notes, result.embeddings = descent.notes, descent.embeddings
    equal = _equal_tokens(subject)
    for row, tokens in enumerate(ids.tolist()):
        for place, token in enumerate(tokens):
            if token in equal:
                result.others[row, place] = equal[token]
    return result


def _normal(subject: Subject, goal: Tensor, seed: int) -> Tensor:
    """Standard normal numbers for a descent to ``goal`` [rows, n, features]: [rows, n, d].

    Drawn by name: the bare seed may give the same numbers as a model's weights.
    """
    rows, n, _ = goal.shape
    return Draws(seed, "inversion", range(rows)).normal(n, subject.hidden, purpose="start")


def decode(subject: Subject, embeddings: Tensor, decoder: str = "nearest") -> Tensor:
    """The tokens [...] of embeddings [..., d] before positions."""
    if decoder == "nearest":
        return decoding.nearest(embedded(subject), embeddings)
    return pseudo_inverse(subject).decode(embeddings)


def likeliest(
    subject: Subject, embeddings: Tensor, count: int, decoder: str = "nearest"
) -> Tensor:
    """The ``count`` best tokens for embeddings [..., d]: [..., count], best first."""
    if decoder == "nearest":
        return decoding.nearest_few(embedded(subject), embeddings, count)
    return pseudo_inverse(subject).top(embeddings, count)


def ranks(subject: Subject, embeddings: Tensor, ids: Tensor, decoder: str = "nearest") -> Tensor:
    """The ranks of tokens ``ids`` [...] for embeddings [..., d], 1 for the best: [...]."""
    if decoder == "nearest":
        return decoding.ranks_by_nearness(embedded(subject), embeddings, ids)
    return pseudo_inverse(subject).ranks(embeddings, ids)


@memo
def pseudo_inverse(subject: Subject) -> decoding.PseudoInverse:
    """The pseudo-inverse of the token embeddings; of the first factor, if they are factorised."""
    return decoding.PseudoInverse.of(embedded(subject))


@memo
def _equal_tokens(subject: Subject) -> dict[int, list[int]]:
    """For each token whose embedding is not unique: all tokens with that embedding."""
    groups = duplicates(embedded(subject))
    return {token: group for group in groups for token in group}


def _any_length(subject: Subject, target: Target, result: Inversion, row: int) -> bool:
    """Whether the prompt repeats one token, and more repetitions end in the same state."""
    ids = result.ids[row : row + 1]
    causal = "causal" in capabilities.probe(subject)
    if not causal or not bool(result.verified[row].all()) or len(set(ids[0].tolist())) > 1:
        return False
    longer = torch.cat([ids, ids[:, :1]], dim=1)
    if subject.context is not None and longer.shape[1] > subject.context:
        return False
    ends = [target.output(subject, each)[:, -1:] for each in (ids, longer)]
    return bool(distance(ends[1], ends[0]).max() <= accepted(subject))
