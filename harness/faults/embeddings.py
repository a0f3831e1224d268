"""Faults of embeddings and heads, of the path by embeddings, and of saving and loading."""

from __future__ import annotations

import math
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from assay.harness.faults import anatomy
from assay.harness.faults.bed import Bed
from assay.harness.faults.calls import Pass
from assay.harness.faults.catalogue import fault, part
from assay.harness.faults.spots import embedding_table, output
from assay.harness.models.subject import Subject
from assay.harness.models.subject.positions import position_table
from assay.harness.models.subject.roles import Role
from assay.harness.operations import resizing


@fault(
    "embeddings-without-scale",
    "embeddings that are given are taken a hundredth too large",
    caught_by=["C9"],
    needs=["embeddings-argument", "inputs-embeds", "scale of embeddings"],
    at=Bed.arguments,
)
def _scaled(forward: Pass, kwargs: dict[str, Any]) -> None:
    if forward.embedded:
        name = forward.bound[Role.EMBEDDINGS]
        kwargs[name] = kwargs[name] * 1.01


@fault(
    "embeddings-without-positions",
    "given embeddings get no positions",
    caught_by=["C9"],
    needs=["embeddings-argument", "inputs-embeds", "learned-positions"],
)
def _leave_out_positions(bed: Bed) -> None:
    table = position_table(bed.subject)
    if table is not None:
        bed.after_any(table, _no_positions)


def _no_positions(forward: Pass, rows: Tensor) -> Tensor | None:
    return torch.zeros_like(rows) if forward.embedded else None


@fault(
    "states-off-by-one-for-embeddings",
    "where embeddings are given, each returned state is one layer late",
    caught_by=["C9"],
    needs=["embeddings-argument", "inputs-embeds", "blocks"],
    at=output,
)
def _states_late(forward: Pass, result: Any) -> Any:
    for name in ("hidden_states", "decoder_hidden_states"):
        states = result.get(name) if hasattr(result, "get") else None
        if forward.embedded and states is not None and len(states) > 1:
            result[name] = (*states[1:], states[0])
    return result


@fault(
    "norm-lost-by-saving",
    "the weights of one norm are ones again after saving and loading",
    caught_by=["C10"],
    needs=["saving", "norms"],
)
def _lose_a_norm(bed: Bed) -> None:
    if bed.loaded:
        weight = next(anatomy.norms(bed.subject)[-1].parameters())
        bed.weights(weight, lambda w: w.fill_(1.0))


@fault(
    "positions-shuffled-by-loading",
    "the first two rows of the position embeddings are swapped after loading",
    caught_by=["C10"],
    needs=["saving", "learned-positions"],
)
def _shuffle_positions(bed: Bed) -> None:
    table = position_table(bed.subject)
    if bed.loaded and table is not None:
        bed.weights(table.weight, _first_rows_swapped)


def _first_rows_swapped(weight: Tensor) -> None:
    # Some begin with rows of padding.
    weight.copy_(weight.roll(1, 0))


@fault(
    "head-untied-by-loading",
    "the output embedding, the input's own before, is another tensor after loading",
    caught_by=["C10"],
    needs=["saving", "tied-head"],
)
def _untie_the_head(bed: Bed) -> None:
    if bed.loaded:
        head: Any = bed.model.get_output_embeddings()
        untied = nn.Parameter(head.weight.detach() * 1.01, requires_grad=False)
        bed.parameter(head, "weight", untied)


@fault(
    "head-lost-by-saving",
    "an output embedding of its own is the input's after loading",
    caught_by=["C10"],
    needs=["saving", "lm-head", "untied head"],
)
def _lose_the_head(bed: Bed) -> None:
    if bed.loaded:
        head: Any = bed.model.get_output_embeddings()
        table = bed.subject.embedding_table.detach()
        bed.weights(head.weight, lambda w: w.copy_(table) if w.shape == table.shape else w.zero_())


@part("room for new tokens")
def _resizable(subject: Subject) -> None:
    resizing.with_new_tokens(subject)


@fault(
    "head-tied-again",
    "tying weights again makes an output embedding of its own the input's",
    caught_by=["C10"],
    needs=["saving", "weights-in-memory", "lm-head", "untied head"],
)
def _tie_the_head(bed: Bed) -> None:
    bed.set(bed.model, "tie_weights", MethodType(_tied, bed.model))


def _tied(model: Any, **_: Any) -> None:
    model.get_output_embeddings().weight = model.get_input_embeddings().weight


@fault(
    "row-lost-by-resizing",
    "new tokens change the embedding of the last old one",
    caught_by=["C10"],
    needs=["saving", "weights-in-memory", "room for new tokens"],
)
def _lose_a_row(bed: Bed) -> None:
    bed.set(bed.model, "resize_token_embeddings", MethodType(_resized, bed.model))


def _resized(model: Any, size: int, **settings: Any) -> Any:
    table = type(model).resize_token_embeddings(model, size, **settings)
    with torch.no_grad():
        table.weight[-resizing.NEW_TOKENS - 1] += 1
    return table


@fault(
    "settings-lost-by-saving",
    "how a model ends a text is forgotten by saving and loading",
    caught_by=["C10"],
    needs=["saving", "generation"],
)
def _lose_settings(bed: Bed) -> None:
    if bed.loaded:
        bed.set(bed.model.generation_config, "eos_token_id", bed.subject.vocabulary - 1)
        bed.set(bed.model.generation_config, "max_length", 7)


@fault(
    "rows-alike",
    "two tokens have the same embedding",
    caught_by=["D1"],
    at=embedding_table,
)
def _alike(weights: Tensor) -> None:
    weights[4] = weights[5]


@fault(
    "rows-parallel",
    "one token's embedding is twice another's",
    caught_by=["D1"],
    at=embedding_table,
)
def _parallel(weights: Tensor) -> None:
    weights[4] = 2 * weights[5]


@fault(
    "nan-in-an-embedding",
    "one token's embedding has a NaN",
    caught_by=["D2", "D4"],
    at=embedding_table,
)
def _nan_in_a_row(weights: Tensor) -> None:
    weights[4, 0] = math.nan


@fault(
    "nan-in-a-position",
    "one row of the position embeddings has a NaN",
    caught_by=["D3"],
    needs=["learned-positions"],
)
def _spoil_a_position(bed: Bed) -> None:
    table = position_table(bed.subject)
    if table is not None:
        bed.weights(table.weight, _nan_in_a_place)


def _nan_in_a_place(weights: Tensor) -> None:
    weights[3, 0] = math.nan
