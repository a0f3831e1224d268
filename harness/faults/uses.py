"""Faults in ways of running a model: packed samples, losses, training, turns, large batches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from assay.harness.faults import anatomy
from assay.harness.faults.bed import Bed
from assay.harness.faults.calls import AttentionCall, Pass, own_cache
from assay.harness.faults.catalogue import fault, part
from assay.harness.faults.spots import first_block, sdpa
from assay.harness.models import capabilities
from assay.harness.models.capabilities import releases, serving
from assay.harness.models.subject import Subject
from assay.harness.models.subject.roles import Role
from assay.harness.operations import exporting, losses
from assay.harness.results.errors import Missing

LEAK = 1e-3
"""Share of a row, or of a gradient, that is wrong."""

MANY = 4
"""Rows up to which a batch is handled rightly."""

SERVED = "has been served"
"""The note of a model that a server has run."""


@part("served requests")
def _served(subject: Subject) -> None:
    capabilities.require(subject, "continuous-batching")
    serving.require(subject)


@part("shifted loss of the library")
def _shifted_loss(subject: Subject) -> None:
    """The trainer looks up by the name of the class whether the loss shifts its labels."""
    capabilities.require(subject, "trainer")
    capabilities.require(subject, "shifted-labels")
    if "CausalLM" not in str(getattr(subject.model, "loss_type", None)):
        raise Missing("the class names no loss (docs/defects)")


@part("exported program")
def _exported(subject: Subject) -> None:
    exporting.program(subject)


@fault(
    "packed-samples-seen",
    "samples packed into one row see those before them under sdpa",
    caught_by=["G1"],
    needs=["packing", "sdpa"],
    at=sdpa,
)
def _one_sample(call: AttentionCall) -> Any:
    places, mask = call.forward.positions, call.mask
    if places is None or mask is None or not bool((places.diff(dim=-1) < 0).any()):
        return call.attend()
    earlier = torch.ones_like(mask, dtype=torch.bool).tril()
    if mask.dtype != torch.bool:
        earlier = torch.zeros_like(mask).masked_fill(~earlier, torch.finfo(mask.dtype).min)
    return call.attend(mask=earlier)


@fault(
    "packed-samples-apart-in-some-layers",
    "beside a 2-D mask every other layer keeps packed samples apart under sdpa",
    caught_by=["G1"],
    needs=["packing", "mask-4d", "sdpa"],
    at=sdpa,
)
def _apart_in_some(call: AttentionCall) -> Any:
    places, mask = call.forward.positions, call.mask
    given = mask is not None and mask.dtype != torch.bool  # a 4-D mask, which says all
    if places is None or given or getattr(call.module, "layer_idx", 0) % 2 == 0:
        return call.attend()
    sample = (places.diff(dim=-1) != 1).cumsum(-1)
    sample = torch.nn.functional.pad(sample, (1, 0))
    if sample.shape[-1] != call.key.shape[2] or not bool(sample.any()):
        return call.attend()
    same = sample[:, None, :, None] == sample[:, None, None, :]
    return call.attend(mask=same & (same.new_ones(same.shape).tril() if mask is None else mask))


@fault(
    "labels-late",
    "labels are compared one position too late",
    caught_by=["G2"],
    needs=["loss"],
    at=Bed.arguments,
)
def _late(forward: Pass, kwargs: dict[str, Any]) -> None:
    if (name := forward.name(kwargs, Role.LABELS)) is not None:
        kwargs[name] = kwargs[name].roll(1, 1)


@fault(
    "ignored-labels-counted",
    "labels to ignore count as the first token",
    caught_by=["G2"],
    needs=["loss"],
    at=Bed.arguments,
)
def _counted(forward: Pass, kwargs: dict[str, Any]) -> None:
    if (name := forward.name(kwargs, Role.LABELS)) is not None:
        kwargs[name] = kwargs[name].clamp_min(0)


@fault(
    "labels-ignored-in-all-rows",
    "a label that one row ignores is ignored in every row",
    caught_by=["G2"],
    needs=["loss"],
    at=Bed.arguments,
)
def _ignored_in_all(forward: Pass, kwargs: dict[str, Any]) -> None:
    if (name := forward.name(kwargs, Role.LABELS)) is not None:
        ignored = (kwargs[name] == losses.IGNORED).any(0)
        kwargs[name] = kwargs[name].masked_fill(ignored, losses.IGNORED)


@fault(
    "labels-ignored-next-to-padding",
    "a label next to padding is ignored too",
    caught_by=["G2"],
    needs=["loss", "padding"],
    at=Bed.arguments,
)
def _next_to_padding(forward: Pass, kwargs: dict[str, Any]) -> None:
    name = forward.name(kwargs, Role.LABELS)
    if name is not None and forward.padded is not None:
        beside = forward.padded.roll(1, 1) | forward.padded.roll(-1, 1)
        kwargs[name] = kwargs[name].masked_fill(beside, losses.IGNORED)


@fault(
    "gradients-of-the-loss-larger",
    "the gradient through the first block is a thousandth larger where labels are given",
    caught_by=["G3"],
    needs=["loss", "parameter-gradients", "blocks"],
    at=first_block,
)
def _larger_with_labels(forward: Pass, state: Tensor) -> Tensor | None:
    return _scaled(state) if forward.labelled else None


@fault(
    "loss-of-one-batch",
    "the loss is divided by its own batch's labels, whatever number is given",
    caught_by=["G2"],
    needs=["loss over several batches"],
    at=Bed.arguments,
)
def _own_number(forward: Pass, kwargs: dict[str, Any]) -> None:
    kwargs.pop(forward.bound[Role.LABEL_COUNT], None)


@fault(
    "gradients-of-several-rows-larger",
    "the gradient through the first block is a thousandth larger for several rows",
    caught_by=["G3"],
    needs=["parameter-gradients", "blocks", "lm-head", "padding"],
    at=first_block,
)
def _larger(forward: Pass, state: Tensor) -> Tensor | None:
    return _scaled(state) if forward.rows > 1 else None


@fault(
    "gradients-in-training-larger",
    "the gradient through the first block is a thousandth larger in train mode",
    caught_by=["G3"],
    needs=["parameter-gradients", "blocks", "lm-head"],
    at=first_block,
)
def _larger_in_training(forward: Pass, state: Tensor) -> Tensor | None:
    return _scaled(state) if forward.training else None


@fault(
    "trainer-counts-first-labels",
    "the class names no loss, so that the trainer counts the first label of each row as well",
    caught_by=["G3"],
    needs=["shifted loss of the library"],
)
def _nameless(bed: Bed) -> None:
    bed.set(bed.model, "loss_type", None)  # the library's default is the same loss


def _scaled(state: Tensor) -> Tensor:
    """The same numbers, with a gradient that is larger by `LEAK`."""
    return state + LEAK * (state - state.detach())


@fault(
    "turns-lose-a-token",
    "where several tokens are read beside a cache, the first of them is read as the second",
    caught_by=["G7"],
    needs=["continued-generation", "lm-head", "causal"],
    at=Bed.arguments,
)
def _second_twice(forward: Pass, kwargs: dict[str, Any]) -> None:
    ids = forward.ids
    if forward.cached and ids is not None and ids.shape[1] > 1:
        kwargs[forward.bound[Role.IDS]] = torch.cat([ids[:, 1:2], ids[:, 1:]], dim=1)


@fault(
    "rejected-draft-kept",
    "the first of the rejected drafted tokens stays in the cache",
    caught_by=["G6", "C4"],
    needs=["drafts", "kv-cache"],
    at=Bed.arguments,
)
def _one_kept(forward: Pass, kwargs: dict[str, Any]) -> None:
    cache = own_cache(forward.cache)
    if cache is not None and "crop" not in vars(cache):
        cache.crop = partial(_short_crop, cache.crop)


def _short_crop(usual: Callable[[int], Any], tokens: int) -> Any:
    """Replaces a cache's ``crop``: it removes one token less, or keeps one more."""
    return usual(tokens + 1 if tokens else 0)


def _served_by_sdpa(bed: Bed, change: Callable[..., Any]) -> None:
    """Replacing attention by sdpa, and what serves by it before transformers 5.18."""
    sdpa(bed, change)
    if "paged|sdpa" in releases.attention_functions():
        bed.attention(anatomy.mixers(bed.subject), "paged|sdpa", change)


@fault(
    "requests-mixed",
    "where several requests are packed into a batch, each token attends to those of the others",
    caught_by=["G5"],
    needs=["continuous-batching", "sdpa"],
    at=_served_by_sdpa,
)
def _all_requests(call: AttentionCall) -> Any:
    mask = call.mask
    if mask is None or not call.forward.served:
        return call.attend()
    return call.attend(mask=torch.zeros_like(mask))


@fault(
    "served-models-train-otherwise",
    "once a model has been served, the gradient through its first block is larger in train mode",
    caught_by=["G5"],
    needs=["served requests", "parameter-gradients", "blocks"],
)
def _trained_otherwise(bed: Bed) -> None:
    bed.arguments(_note_served)
    first_block(bed, _larger_once_served)


def _note_served(forward: Pass, kwargs: dict[str, Any]) -> None:
    if forward.served:
        forward.notes[SERVED] = True


def _larger_once_served(forward: Pass, state: Tensor) -> Tensor | None:
    return _scaled(state) if forward.training and SERVED in forward.notes else None


@fault(
    "last-logits-early",
    "requested logits are those of one position before",
    caught_by=["G8"],
    needs=["logits-to-keep"],
    at=Bed.arguments,
)
def _early(forward: Pass, kwargs: dict[str, Any]) -> None:
    name, n = forward.bound[Role.KEPT_LOGITS], forward.new
    selection = kwargs.get(name)
    if isinstance(selection, Tensor):
        kwargs[name] = (selection - 1).clamp_min(0)
    elif selection:
        kwargs[name] = (torch.arange(n - selection, n) - 1).clamp_min(0)


@fault(
    "large-batches-mixed",
    "in batches of more than four rows a thousandth of the mean row is added to each",
    caught_by=["G9"],
    needs=["blocks"],
    at=first_block,
)
def _mixed(forward: Pass, state: Tensor) -> Tensor | None:
    return state + LEAK * state.mean(0, keepdim=True) if forward.rows > MANY else None


@fault(
    "loading-leaves-a-number",
    "loading leaves the last number of a weight unset",
    caught_by=["H1"],
    needs=["saving", "weights-in-memory"],
)
def _unset(bed: Bed) -> None:
    if bed.loaded:
        weight = max(bed.model.parameters(), key=torch.numel)
        bed.weights(weight, lambda numbers: numbers.view(-1)[-1:].zero_())


@fault(
    "frequencies-not-initialised",
    "initialising a model leaves its rotary frequencies as they were in memory",
    caught_by=["H1"],
    needs=["saving", "weights-in-memory", "halves rotated"],
)
def _left_unset(bed: Bed) -> None:
    if bed.loaded:
        bed.set(bed.model, "init_weights", partial(_forgetful, bed.model))


def _forgetful(model: Any) -> None:
    """Replaces a model's ``init_weights``: it sets all but the rotary frequencies."""
    buffers = dict(model.named_buffers())
    before = {name: buffers[name].clone() for name in buffers if name.endswith("inv_freq")}
    type(model).init_weights(model)
    for name, frequencies in before.items():
        buffers[name].copy_(frequencies)


@fault(
    "loading-changes-the-configuration",
    "a loaded model's configuration has half of a number in its file",
    caught_by=["H6"],
    needs=["saving", "weights-in-memory"],
)
def _another_number(bed: Bed) -> None:
    config = bed.model.config
    if bed.loaded:
        numbers = {k: each for k, each in vars(config).items() if type(each) is float and each}
        name = next(iter(numbers))
        bed.set(config, name, numbers[name] / 2)


@fault(
    "autocast-cuts-large-numbers",
    "under autocast the first block's output is cut off at half its largest number",
    caught_by=["G14"],
    needs=["blocks", "bfloat16", "saving"],
    at=first_block,
)
def _cut_off(forward: Pass, state: Tensor) -> Tensor | None:
    if not torch.is_autocast_enabled(state.device.type):
        return None
    most = state.abs().amax(-1, keepdim=True) / 2
    return state.clamp(-most, most)


@fault(
    "exported-rows-mixed",
    "in an exported program a thousandth of the mean row is added to each",
    caught_by=["G13"],
    needs=["blocks", "exported program"],
    at=first_block,
)
def _mixed_in_export(forward: Pass, state: Tensor) -> Tensor | None:
    return state + LEAK * state.mean(1, keepdim=True) if _exporting() else None


def _exporting() -> bool:
    """Whether a program is traced for export; before torch 2.7, or to be compiled.

    Code that torch 2.11 compiles is told that it is exported.
    """
    compiler: Any = torch.compiler
    if not hasattr(compiler, "is_exporting"):
        return bool(compiler.is_compiling())
    return bool(compiler.is_exporting()) and not compiler.is_dynamo_compiling()


@fault(
    "compiled-rows-mixed",
    "in compiled code a thousandth of the mean row is added to each",
    caught_by=["G4"],
    needs=["blocks"],
    at=first_block,
)
def _mixed_if_compiled(forward: Pass, state: Tensor) -> Tensor | None:
    if not torch.compiler.is_compiling() or _exporting():
        return None
    return state + LEAK * state.mean((0, 1), keepdim=True)
