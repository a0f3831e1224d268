"""How far two answers of an engine may be apart: what rounding in its types explains.

Of the types in which an engine computes a table says it, which the engine's own error against
float64 tightens where there is a model of the same weights.  What the engine rounds to 8 bits or
fewer is measured in that model (`middle`): no table holds for every model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from assay.harness.checking.reference import MACHINES
from assay.harness.engines import middle
from assay.harness.engines.interface import Engine, Ids, Scores
from assay.harness.engines.middle import kind
from assay.harness.engines.scores import Rows, apart, rows_of
from assay.harness.engines.subject import EngineSubject
from assay.harness.models.machine.devices import DTYPES
from assay.harness.models.reference.float64 import reference_of
from assay.harness.models.reference.rounding import Rounding
from assay.harness.models.subject import Subject
from assay.harness.results.arrays import Array
from assay.harness.results.errors import Missing

ALONE = {
    "float64": 1e-10,
    "float32": 1e-4,
    "float16": 2e-2,
    "bfloat16": 1e-1,
    "8 bits": 1e-1,
    "fewer bits": 0.5,
}
"""The relative distance of a row that rounding explains at most, by type of computation or cache.

In float32, engines of 24 layers differ from transformers by up to 2e-4 nats, about 5e-5 of a row's
spread.  In fewer bits, three to five times the floors for models
(`harness.models.reference.tolerances`).  A cache of 8 bits or fewer, where no model is at hand.
"""

REPEATED = {"float64": 1e-12, "float32": 1e-5, "float16": 1e-4, "bfloat16": 2e-4}
"""Of two equal requests alone, by type of computation: no rounding differs between them."""

FACTOR = 6.0
"""A path may be off by this multiple of the plain path's own error, and a tenth of the limit."""

INDEPENDENT = 3.0
"""Two answers may be apart by this multiple of what rounding to 8 bits or fewer changes in one.

Where the two roundings share nothing it is 1.4 in the median and 2.8 at most: 1200 pairs, inputs
by row and in blocks, on five tiny models.
"""

FARTHEST = 30.0
"""Answers that are farther apart than this multiple of what is allowed are not looked at again:
rounding in float32 was seen to move one by 5 times that."""

NEAR = 0.3
"""Experts chosen by less than this share of what rounding explains, in probability, are near-tied:
in bfloat16 3e-2, as for models (`harness.models.reference.tolerances`)."""


def rounding(engine: Engine) -> float:
    """What the table says of the engine's types: the largest of them."""
    kinds = {kind(engine.dtype), kind(engine.cache or engine.dtype)}
    if engine.activations:
        kinds.add("fewer bits")  # the table has no row of inputs in 8 bits, which change more
    return max(ALONE[each] for each in kinds)


def limits(
    subject: EngineSubject, requests: Sequence[Ids], references: Sequence[Rows] = ()
) -> list[float]:
    """What rounding explains at most between two answers to each of ``requests``, of one length.

    ``references`` are its own weights' answers in float64, as far as they are compared.  Raises
    `Missing` where inputs are rounded and no model is at hand to measure what that changes.
    """
    engine, model = subject.engine, subject.in_its_dtype or subject.against
    cache = middle.cache_of(engine)
    if model is None and engine.activations:
        raise Missing(
            f"engine-model: what inputs in {engine.activations} change depends on the model; "
            "--against names one"
        )
    if model is None or not (engine.activations or cache):
        return [rounding(engine)] * len(requests)
    references = references or exact(subject.same_weights or model, engine, *requests)

    def changed(inputs: str, cache: str) -> list[float]:
        """What rounding these changes of each answer: the worst row's distance."""
        if not (inputs or cache):
            return [0.0] * len(requests)
        rows = middle.of_model(model, requests, engine, inputs, cache)
        pairs = (apart(one, other) for one, other in zip(rows, references, strict=True))
        return [each.error if each else 0.0 for each in pairs]

    table = max(ALONE[kind(each)] for each in (engine.dtype, cache) if kind(each) in DTYPES)
    both = zip(changed(engine.activations, ""), changed("", cache), strict=True)
    return [
        max(table, INDEPENDENT * inputs + min(INDEPENDENT * cached, most_of_cache(cache)))
        for inputs, cached in both
    ]


def most_of_cache(cache: str) -> float:
    """The most that a cache of this type may change; one that changes more is too coarse.

    In 16 bits as much as in 8: keys of Qwen2.5 are so large that float16 changes up to 0.11.
    """
    return ALONE["8 bits" if kind(cache) in DTYPES else kind(cache)]


def exact(model: Subject, engine: Engine, *requests: Ids) -> list[Rows]:
    """The log-probabilities of ``model`` in float64 after each of ``requests``, of one length.

    Those of an MoE model end before the first token whose experts the engine's rounding may
    choose: two correct paths then differ by any amount.
    """
    pass_ = reference_of(model).rows(torch.tensor(requests, device=model.device), states=False)
    every = [rows_of(Scores(each), engine.vocabulary, model.name) for each in pass_["logits"]]
    clear = pass_.row_mask(NEAR * rounding(engine))
    if clear is None:
        return every
    ends = clear.long().cumprod(1).sum(1).tolist()
    return [rows.at(0, end) for rows, end in zip(every, ends, strict=True)]


@dataclass
class Room:
    """How far another answer to ``ids`` may be from the engine's plain one: ``most``.

    Some prompts are so sensitive that rounding in float32 moves any path farther than the table
    says: rare tokens, in a trained model.
    """

    subject: EngineSubject
    ids: Ids
    most: float
    emulated: bool = False

    def of(self, error: float) -> float:
        """The ``most``; before an ``error`` exceeds it, what the rounding of other machines
        changes is measured as well.
        """
        if not self.emulated and self.most < error <= FARTHEST * self.most:
            self.most = max(self.most, elsewhere(self.subject, self.ids))
            self.emulated = True
        return self.most


def elsewhere(subject: EngineSubject, ids: Ids) -> float:
    """What rounding explains between two answers to ``ids``, as other machines may round.

    0 without a model of the engine's weights that computes in its type, and where the engine
    rounds to other types: what these change hides it.
    """
    engine, model, same = subject.engine, subject.in_its_dtype, subject.same_weights
    if model is None or same is None or engine.activations or middle.cache_of(engine):
        return 0.0
    (reference,), errors = exact(same, engine, ids), [0.0]
    for seed in range(MACHINES):
        with Rounding(seed):
            (rows,) = middle.of_model(model, [ids], engine)
        if (distance := apart(rows, reference)) is not None:
            errors.append(distance.error)
    return INDEPENDENT * max(errors)


def plain(subject: EngineSubject, ids: Ids) -> tuple[Rows, Room]:
    """The engine's answer to ``ids`` alone and cold, and how far another path may be from it.

    Laws share requests (`fixtures.engines`): what passes of the model say of one is kept.  Raises
    `Missing` where routers of experts may decide, and nothing says where.
    """
    (rows,) = subject.scores([ids])
    if (key := tuple(ids)) not in subject.allowances:
        subject.allowances[key] = _allowance(subject, ids, rows)
    end, room, spread = subject.allowances[key]
    return replace(rows.at(0, end), spread=spread), room


def _allowance(subject: EngineSubject, ids: Ids, rows: Rows) -> tuple[int, Room, Array | None]:
    """Up to which position answers to ``ids`` are compared, how far they may be apart, and the
    spread of their rows (`Rows.spread`).
    """
    engine, model = subject.engine, subject.same_weights
    if model is None:
        (most,) = limits(subject, [ids])
        if engine.routed and most > ALONE["float32"]:
            raise Missing(
                "engine-model: in few bits routers choose by near-ties, of which only a "
                "model can tell; --against names one"
            )
        return rows.end, Room(subject, ids, most), None
    (reference,) = exact(model, engine, ids)
    (most,) = limits(subject, [ids], [reference])
    own = apart(rows, reference)
    most = most if own is None else min(FACTOR * own.error + most / 10, most)
    return reference.end, Room(subject, ids, most), reference.spreads
