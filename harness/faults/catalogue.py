"""The catalogue of faults: names, sentences, needs, and the claims that must catch them."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from assay.harness.faults import anatomy
from assay.harness.faults.bed import Bed
from assay.harness.faults.calls import AttentionCall, Pass, own_cache
from assay.harness.faults.spots import sdpa
from assay.harness.models import capabilities
from assay.harness.models.capabilities import Missing, caches
from assay.harness.models.reference.tolerances import distance
from assay.harness.models.subject import Subject, experts
from assay.harness.operations import generation, losses
from assay.harness.results.errors import BadInput

NOTICED = 1e-4
"""A relative change that is clearly more than rounding."""


@dataclass(frozen=True)
class Fault:
    """A defect with a name: ``says`` describes it, ``caught_by`` are the claims that must notice.

    ``needs`` are capabilities, and parts of a model (`PARTS`), without which it does not apply;
    ``plant`` injects it into a model (`Bed`).  One of the claims in ``caught_by`` is enough.
    """

    name: str
    says: str
    caught_by: tuple[str, ...]
    needs: tuple[str, ...]
    plant: Callable[[Bed], None]
    file: str = ""
    """Where it is declared, if not in Assay."""

    def lacks(self, subject: Subject) -> str:
        """What a sound ``subject`` lacks for this fault, and why; empty if nothing."""
        for need in self.needs:
            try:
                if need in PARTS:
                    PARTS[need](subject)
                else:
                    capabilities.require(subject, need)
            except Missing as missing:
                reason = str(missing)
                return reason if reason.startswith(f"{need}: ") else f"{need}: {reason}"
        return ""


FAULTS: dict[str, Fault] = {}
"""Every fault by its name."""


F = TypeVar("F", bound=Callable[..., Any])


def fault(
    name: str,
    says: str,
    *,
    caught_by: Sequence[str],
    needs: Sequence[str] = (),
    at: Callable[[Bed, Any], None] | None = None,
) -> Callable[[F], F]:
    """Add a fault to the catalogue: a change applied by ``at`` (`spots`, `Bed`).

    Without ``at`` the function injects the fault into a bed itself.
    """

    def enter(function: F) -> F:
        if name in FAULTS:
            raise ValueError(f"two faults are named {name!r}")
        plant = function if at is None else lambda bed: at(bed, function)
        own = str(function.__module__).startswith("assay.")
        file = "" if own else inspect.getfile(function)
        FAULTS[name] = Fault(name, says, tuple(caught_by), tuple(needs), plant, file)
        return function

    return enter


def named(name: str) -> Fault:
    """The fault of that name; raises `BadInput` with near names for an unknown one."""
    if name not in FAULTS:
        near = difflib.get_close_matches(name, FAULTS, cutoff=0.5)
        hint = f"near: {', '.join(near)}" if near else "see assay faults"
        raise BadInput(f"{name!r}: is not a fault; {hint}")
    return FAULTS[name]


PARTS: dict[str, Callable[[Subject], object]] = {}
"""Parts that a fault may need as well as capabilities: a probe each that raises `Missing`."""


def part(name: str) -> Callable[[Callable[[Subject], object]], Callable[[Subject], object]]:
    """Register a probe under ``name``."""

    def register(probe: Callable[[Subject], object]) -> Callable[[Subject], object]:
        PARTS[name] = probe
        return probe

    return register


PARTS |= {
    "mixers": anatomy.mixers,
    "norms": anatomy.norms,
    "rotary": anatomy.angles,
    "alibi": anatomy.slopes,
    "experts": anatomy.mixtures,
    "dropout": anatomy.dropouts,
    "head projection": lambda s: [anatomy.projection(s, m) for m in anatomy.mixers(s)],
}


@part("several layers")
def _several_layers(subject: Subject) -> None:
    if subject.layers < 2:
        raise Missing("the model has one layer")


@part("halves rotated")
def _halves(subject: Subject) -> None:
    """One rotation for all layers, of the first half of each head against the second."""
    for module in anatomy.angles(subject):
        if not torch.is_tensor(getattr(module, "inv_freq", None)):
            raise Missing("no module keeps one set of rotary frequencies")


@part("window")
def _window(subject: Subject) -> None:
    if subject.window is None:
        raise Missing("no layer has a sliding window")


@part("static cache")
def _static_cache(subject: Subject) -> None:
    capabilities.require(subject, "kv-cache")
    if subject.window is not None:
        raise Missing("a layer has a window: its buffers are not as long as the cache")
    caches.make(subject, "static", 1, 4)


@part("sdpa")
def _sdpa(subject: Subject) -> None:
    """It attends by sdpa by default, through the library's table of functions."""
    if subject.attention != "sdpa":
        raise Missing(f"the model attends by {subject.attention}")
    calls: list[bool] = []
    bed = Bed(subject)
    try:
        sdpa(bed, partial(_noted, calls=calls))
        subject(_prompt(subject))
    finally:
        bed.undo()
    if not calls:
        raise Missing("the model does not look sdpa up among the library's functions")


@part("experts at once")
def _experts_at_once(subject: Subject) -> None:
    """Several of a token's experts can be computed at once, by a function of the library."""
    experts.require(subject, experts.NAMED)


def _noted(call: AttentionCall, calls: list[bool]) -> Any:
    calls.append(True)
    return call.attend()


def _prompt(subject: Subject) -> Tensor:
    return subject.content(torch.arange(4, device=subject.device)[None] * 5)


@part("recurrence")
def _recurrence(subject: Subject) -> None:
    """A layer keeps a state that is updated token by token."""
    capabilities.require(subject, "cache")
    if not _linear_layers(subject):
        raise Missing("no layer keeps a recurrent state")


def _linear_layers(subject: Subject) -> list[object]:
    cache = subject(_prompt(subject), keep=True, states=False).cache
    return [
        layer
        for layer in getattr(cache, "layers", ())
        if any(torch.is_tensor(s) for s in getattr(layer, "recurrent_states", {}).values())
    ]


@part("loss over several batches")
def _loss_over_batches(subject: Subject) -> None:
    """The loss of labels is divided by a number that is given."""
    capabilities.require(subject, "loss-over-batches")
    ids = _prompt(subject)
    if losses.own(subject, ids, ids, label_count=2 * ids.numel()) == losses.own(subject, ids, ids):
        raise Missing("the model ignores it already (docs/defects)")


FAR = 200
"""The position at which some faults begin, which no configuration names."""


@part("far prompts")
def _far_prompts(subject: Subject) -> None:
    """Prompts go well beyond the position at which those faults begin."""
    if subject.context is not None and subject.context < FAR + 64:
        raise Missing(f"a context of {subject.context} tokens is too short")


@part("encoder")
def _encoder(subject: Subject) -> None:
    if not subject.is_encoder_decoder:
        raise Missing("the model is not an encoder-decoder")


@part("attention cache of its own")
def _own_attention_cache(subject: Subject) -> None:
    capabilities.require(subject, "kv-cache")
    cache = own_cache(subject(_prompt(subject), keep=True, states=False).cache)
    if not hasattr(cache, "update"):
        raise Missing("its cache is not updated layer by layer")


@part("untied head")
def _untied_head(subject: Subject) -> None:
    if "tied-head" in capabilities.probe(subject):
        raise Missing("the output embedding is the input embedding")


@part("scale of embeddings")
def _scale_of_embeddings(subject: Subject) -> None:
    """Embeddings larger by a hundredth change the output: no norm removes their scale."""
    capabilities.require(subject, "inputs-embeds")
    embeddings = subject.input_embeddings(_prompt(subject)).detach()
    usual, larger = (
        subject.rows(embeddings=each, states=False) for each in (embeddings, 1.01 * embeddings)
    )
    apart = [
        distance(larger[name], usual[name]).max()
        for name in ("logits", "output")
        if name in usual.tensors
    ]
    if not any(far > NOTICED for far in apart):
        raise Missing("a norm removes the scale of the embeddings")


@part("drafts")
def _drafts(subject: Subject) -> None:
    """Assisted decoding drafts tokens and crops rejected ones from the cache."""
    for need in ("generation", "cache", "lm-head"):
        capabilities.require(subject, need)
    crops: list[int] = []
    bed = Bed(subject)
    bed.arguments(partial(_watch_crops, crops=crops))
    try:
        generation.scores(subject, _prompt(subject).repeat(1, 3), "assisted", cached=True)
    finally:
        bed.undo()
    if not any(crops):
        raise Missing("no drafted token was rejected, so none is dropped from the cache")


def _watch_crops(forward: Pass, kwargs: dict[str, Any], crops: list[int]) -> None:
    cache = forward.cache
    if cache is not None and "crop" not in vars(cache):
        usual = cache.crop

        def crop(tokens: int) -> Any:
            crops.append(int(tokens))
            return usual(tokens)

        cache.crop = crop
