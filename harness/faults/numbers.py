"""Faults of arithmetic: precision, norms, scales, dropout, gradients, inputs that are changed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from harness.faults import anatomy
from harness.faults.bed import Bed, Pass
from harness.faults.catalogue import fault


@fault(
    "downcast-when-cached",
    "with a past, one layer computes in bfloat16",
    caught_by=["C2"],
    needs=["cache", "blocks"],
)
def _(bed: Bed) -> None:
    bed.after(anatomy.blocks(bed.subject)[0], _downcast)


def _downcast(seen: Pass, module: nn.Module, state: Tensor) -> Tensor | None:
    return state.to(torch.bfloat16).to(state) if seen.cached else None


@fault(
    "clamp-left-out-when-cached",
    "states are clamped at 0.9998 of their largest element, but not with a past",
    caught_by=["C2"],
    needs=["cache", "blocks"],
)
def _(bed: Bed) -> None:
    bed.after(anatomy.blocks(bed.subject)[0], _clamped)


def _clamped(seen: Pass, module: nn.Module, state: Tensor) -> Tensor | None:
    if seen.cached:
        return None
    most = 0.9998 * state.abs().amax(-1, keepdim=True)
    return torch.minimum(torch.maximum(state, -most), most)


@fault(
    "norm-skipped-when-cached",
    "with a past, one norm does nothing",
    caught_by=["C2"],
    needs=["cache", "norms"],
)
def _(bed: Bed) -> None:
    norm = anatomy.norms(bed.subject)[-1]
    bed.before(norm, _note_input)
    bed.after(norm, _skipped)


def _note_input(seen: Pass, module: nn.Module, given: tuple, named: dict) -> None:
    seen.kept["before the norm"] = given[0]


def _skipped(seen: Pass, module: nn.Module, state: Tensor) -> Tensor | None:
    given = seen.kept.pop("before the norm")
    return given if seen.cached else None


@fault(
    "scale-missing-under-sdpa",
    "attention by sdpa does not divide its scores by the root of the head's size",
    caught_by=["C8"],
    needs=["sdpa"],
)
def _(bed: Bed) -> None:
    bed.attention(anatomy.mixers(bed.subject), "sdpa", _unscaled)


def _unscaled(
    seen: Pass,
    usual: Any,
    module: nn.Module,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Any,
    named: Any,
) -> Any:
    given = named.get("scaling")
    usual_scale = q.shape[-1] ** -0.5 if given is None else given
    # Some have a scale of one: there it is divided twice.
    scale = 1.0 if usual_scale != 1.0 else q.shape[-1] ** -0.5
    return usual(module, q, k, v, mask, **{**named, "scaling": scale})


@fault(
    "dropout-left-on",
    "one part goes on dropping a tenth after training",
    caught_by=["C10"],
    needs=["dropout"],
)
def _(bed: Bed) -> None:
    for module in anatomy.dropouts(bed.subject):
        bed.set(module, "training", True)
        rate = "p" if isinstance(module, nn.Dropout) else "attention_dropout"
        bed.set(module, rate, 0.1)


@fault(
    "router-jitter-left-on",
    "what is routed to experts is jittered by a hundredth after training",
    caught_by=["C10"],
    needs=["experts"],
)
def _(bed: Bed) -> None:
    for _owner, router in anatomy.mixtures(bed.subject):
        bed.before(router, _jittered)


def _jittered(seen: Pass, module: nn.Module, given: tuple, named: dict) -> tuple:
    noise = torch.empty_like(given[0]).uniform_(0.99, 1.01)
    return (given[0] * noise, *given[1:]), named


@fault(
    "gradients-clipped",
    "one layer scales the gradient that passes back through it down to length one",
    caught_by=["F1"],
    needs=["inputs-embeds", "blocks"],
)
def _(bed: Bed) -> None:
    bed.after(anatomy.blocks(bed.subject)[0], _clipped)


def _clipped(seen: Pass, module: nn.Module, state: Tensor) -> None:
    if state.requires_grad:
        state.register_hook(lambda gradient: gradient / gradient.norm().clamp_min(1.0))


@fault(
    "gradient-not-finite",
    "one element of the gradient that passes back through a layer is infinite",
    caught_by=["F2"],
    needs=["inputs-embeds", "blocks"],
)
def _(bed: Bed) -> None:
    bed.after(anatomy.blocks(bed.subject)[0], _infinite)


def _infinite(seen: Pass, module: nn.Module, state: Tensor) -> None:
    if state.requires_grad:
        state.register_hook(_one_infinite)


def _one_infinite(gradient: Tensor) -> Tensor:
    spoilt = gradient.clone()
    spoilt[..., 0, 0] = torch.inf
    return spoilt


@fault(
    "ids-changed-in-place",
    "the model writes into the ids that it was given",
    caught_by=["C9"],
)
def _(bed: Bed) -> None:
    bed.named(_write_ids)
    bed.set(bed.model, "_planted_vocabulary", bed.subject.vocabulary)


def _write_ids(seen: Pass, model: Any, named: dict) -> None:
    if isinstance(seen.ids, Tensor):
        seen.ids[:, 0] = (seen.ids[:, 0] + 1) % model._planted_vocabulary


@fault(
    "embeddings-changed-in-place",
    "the model writes into the embeddings that it was given",
    caught_by=["C9"],
    needs=["inputs-embeds"],
)
def _(bed: Bed) -> None:
    bed.named(_write_embeddings)


def _write_embeddings(seen: Pass, model: nn.Module, named: dict) -> None:
    for name in ("inputs_embeds", "decoder_inputs_embeds"):
        given = named.get(name)
        if isinstance(given, Tensor) and not given.requires_grad:
            given[:, 0].mul_(1.01)
