"""How far two answers of an engine may be apart: what rounding in its types explains.

With a model of the same weights the engine's own error against float64 decides, and the table
only limits it.  Without one, the table decides alone.
"""

from __future__ import annotations

import torch

from assay.harness.engines.interface import Engine, Ids, Scores
from assay.harness.engines.scores import Rows, apart, rows_of
from assay.harness.engines.subject import EngineSubject
from assay.harness.models.reference.float64 import reference_of
from assay.harness.models.subject import Subject
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
(`harness.models.reference.tolerances`).
"""

INPUTS = {"q8": 0.4, "int8": 0.8}
"""The same for inputs of matrix products in 8 bits: ``q8`` in blocks, ``int8`` by row, where all
numbers share the scale of the largest.  About twice what inputs that are rounded so in
transformers change in Qwen2.5-Coder-0.5B: 0.16 in blocks of 128, 0.43 by row.
"""

REPEATED = {"float64": 1e-12, "float32": 1e-5, "float16": 1e-4, "bfloat16": 2e-4}
"""Of two equal requests alone, by type of computation: no rounding differs between them."""

FACTOR = 6.0
"""A path may be off by this multiple of the plain path's own error, and a tenth of `ALONE`."""

NEAR = 0.3
"""Experts chosen by less than this share of what rounding explains, in probability, are near-tied:
in bfloat16 3e-2, as for models (`harness.models.reference.tolerances`)."""

OTHER_NAMES = {
    **dict.fromkeys(("f32", "fp32", "float"), "float32"),
    **dict.fromkeys(("f16", "fp16", "half"), "float16"),
    "bf16": "bfloat16",
}


def kind(name: str) -> str:
    """The row of `ALONE` for the name of a type: ``int8``, ``q8_0``, ``fp8_e4m3`` have 8 bits."""
    name = OTHER_NAMES.get(name, name)
    return name if name in ALONE else ("8 bits" if "8" in name else "fewer bits")


def rounding(engine: Engine) -> float:
    """What rounding explains at most: the largest of its types'."""
    types = max(ALONE[kind(each)] for each in (engine.dtype, engine.cache or engine.dtype))
    return max(types, INPUTS[engine.activations] if engine.activations else 0.0)


def exact(model: Subject, ids: Ids, engine: Engine) -> Rows:
    """The log-probabilities of ``model`` in float64 after each of ``ids``.

    Those of an MoE model end before the first token whose experts the engine's rounding may
    choose: two correct paths then differ by any amount.
    """
    pass_ = reference_of(model).rows(torch.tensor([ids], device=model.device), states=False)
    rows = rows_of(Scores(pass_["logits"][0]), engine.vocabulary, model.name)
    clear = pass_.row_mask(NEAR * rounding(engine))
    return rows if clear is None else rows.at(0, int(clear.sum()))


def of_model(model: Subject, ids: Ids, engine: Engine) -> Rows:
    """The log-probabilities of ``model`` as it runs after each of ``ids``."""
    logits = model.rows(torch.tensor([ids], device=model.device), states=False)["logits"][0]
    return rows_of(Scores(logits), engine.vocabulary, model.name)


def plain(subject: EngineSubject, ids: Ids) -> tuple[Rows, float]:
    """The engine's answer to ``ids`` alone and cold, and how far another path may be from it.

    Raises `Missing` where routers of experts may decide, and nothing says where.
    """
    (rows,), most = subject.scores([ids]), rounding(subject.engine)
    model = subject.same_weights
    if model is None:
        if subject.engine.routed and most > ALONE["float32"]:
            raise Missing(
                "engine-model: in few bits routers choose by near-ties, of which only a "
                "model can tell; --against names one"
            )
        return rows, most
    reference = exact(model, ids, subject.engine)
    own = apart(rows, reference)
    allowed = most if own is None else min(FACTOR * own.error + most / 10, most)
    return rows.at(0, reference.end), allowed
