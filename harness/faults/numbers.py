"""Faults of arithmetic: precision, norms, scales, dropout, gradients, modified inputs."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from assay.harness.faults import anatomy
from assay.harness.faults.bed import Bed
from assay.harness.faults.calls import AttentionCall, ExpertsCall, Pass
from assay.harness.faults.catalogue import fault
from assay.harness.faults.kernels import one_infinite, to_length_one
from assay.harness.faults.spots import experts_at_once, first_block, sdpa
from assay.harness.models.subject.roles import Role


@fault(
    "downcast-when-cached",
    "with a past, one layer computes in bfloat16",
    caught_by=["C2"],
    needs=["cache", "blocks"],
    at=first_block,
)
def _downcast(forward: Pass, state: Tensor) -> Tensor | None:
    return state.to(torch.bfloat16).to(state) if forward.cached else None


@fault(
    "clamp-left-out-when-cached",
    "states are clamped at 0.9998 of their largest element, but not with a past",
    caught_by=["C2"],
    needs=["cache", "blocks"],
    at=first_block,
)
def _clamped(forward: Pass, state: Tensor) -> Tensor | None:
    if forward.cached:
        return None
    most = 0.9998 * state.abs().amax(-1, keepdim=True)
    return torch.minimum(torch.maximum(state, -most), most)


@fault(
    "norm-skipped-when-cached",
    "with a past, one norm does nothing",
    caught_by=["C2"],
    needs=["cache", "norms"],
)
def _skip_a_norm(bed: Bed) -> None:
    norm = anatomy.norms(bed.subject)[-1]
    bed.before(norm, _note_input)
    bed.after(norm, _skipped)


def _note_input(forward: Pass, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    forward.notes["before the norm"] = args[0]


def _skipped(forward: Pass, state: Tensor) -> Tensor | None:
    norm_input = forward.notes.pop("before the norm")
    return norm_input if forward.cached else None


@fault(
    "scale-missing-under-sdpa",
    "attention by sdpa does not divide its scores by the root of the head's size",
    caught_by=["C8"],
    needs=["sdpa"],
    at=sdpa,
)
def _unscaled(call: AttentionCall) -> Any:
    scaling, by_size = call.kwargs.get("scaling"), call.query.shape[-1] ** -0.5
    usual = by_size if scaling is None else scaling
    # Some models have a scale of one: there it is divided twice.
    return call.attend(scaling=1.0 if usual != 1.0 else by_size)


@fault(
    "experts-weighed-by-a-neighbour",
    "computed many at once, a token's experts are weighed like those of the token before it",
    caught_by=["C8"],
    needs=["experts at once"],
    at=experts_at_once,
)
def _weighed_by_neighbour(call: ExpertsCall) -> Any:
    return call.weighed(call.weights.roll(1, 0))


@fault(
    "dropout-left-on",
    "one part keeps its dropout of a tenth in evaluation",
    caught_by=["C6"],
    needs=["dropout"],
)
def _drop(bed: Bed) -> None:
    for module in anatomy.dropouts(bed.subject):
        bed.set(module, "training", True)
        rate = "p" if isinstance(module, nn.Dropout) else "attention_dropout"
        bed.set(module, rate, 0.1)


@fault(
    "router-jitter-left-on",
    "what is routed to experts is jittered by a hundredth after training",
    caught_by=["C6"],
    needs=["experts"],
)
def _jitter(bed: Bed) -> None:
    for _owner, router in anatomy.mixtures(bed.subject):
        bed.before(router, _jittered)


def _jittered(forward: Pass, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    noise = torch.empty_like(args[0]).uniform_(0.99, 1.01)
    return (args[0] * noise, *args[1:]), kwargs


@fault(
    "gradients-clipped",
    "one layer scales the gradient that passes back through it down to length one",
    caught_by=["F1"],
    needs=["inputs-embeds", "blocks"],
    at=first_block,
)
def _clipped(forward: Pass, state: Tensor) -> None:
    if state.requires_grad:
        state.register_hook(to_length_one)


@fault(
    "gradient-not-finite",
    "one element of the gradient that passes back through a layer is infinite",
    caught_by=["F2"],
    needs=["inputs-embeds", "blocks"],
    at=first_block,
)
def _infinite(forward: Pass, state: Tensor) -> None:
    if state.requires_grad:
        state.register_hook(one_infinite)


@fault(
    "ids-changed-in-place",
    "the model writes into the ids that it was given",
    caught_by=["C9"],
)
def _change_ids(bed: Bed) -> None:
    bed.arguments(partial(_write_ids, vocabulary=bed.subject.vocabulary))


def _write_ids(forward: Pass, kwargs: dict[str, Any], vocabulary: int) -> None:
    if isinstance(forward.ids, Tensor):
        forward.ids[:, 0] = (forward.ids[:, 0] + 1) % vocabulary


@fault(
    "embeddings-changed-in-place",
    "the model writes into the embeddings that it was given",
    caught_by=["C9"],
    needs=["embeddings-argument", "inputs-embeds"],
    at=Bed.arguments,
)
def _write_embeddings(forward: Pass, kwargs: dict[str, Any]) -> None:
    embeddings = kwargs.get(forward.bound[Role.EMBEDDINGS])
    if isinstance(embeddings, Tensor) and not embeddings.requires_grad:
        embeddings[:, 0].mul_(1.01)


@fault(
    "not-a-number-for-one-token",
    "the last block gives NaN for one token of the vocabulary",
    caught_by=["C13"],
    needs=["blocks"],
)
def _nan_for_one(bed: Bed) -> None:
    subject = bed.subject
    token = int(subject.content(torch.tensor([subject.vocabulary // 2], device=subject.device)))
    bed.after(anatomy.blocks(subject)[-1], partial(_not_a_number, token=token))


def _not_a_number(forward: Pass, state: Tensor, token: int) -> Tensor | None:
    ids = forward.ids
    if not isinstance(ids, Tensor) or ids.shape != state.shape[:2]:
        return None
    return state.masked_fill((ids == token)[..., None], torch.nan)
