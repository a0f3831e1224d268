"""Capabilities about what a model carries from one pass to the next: caches and states."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from assay.harness.models.capabilities import caches
from assay.harness.models.capabilities.probing import agree, prompt
from assay.harness.models.capabilities.registry import capability, needs, probe
from assay.harness.models.machine.shortage import pass_on
from assay.harness.models.subject import Subject, passes, roles
from assay.harness.models.subject.passes import Pass
from assay.harness.results.errors import REFUSALS, Missing, first_line


@capability("cached-generation")
def _cached_generation(subject: Subject) -> None:
    """Takes a cache in generation, whether or not a pass returns one."""
    if subject.cache_argument is None:
        others = (*roles.OTHER_PASTS, *subject.bound.caches)
        own = next((name for name in others if name in subject.bound.parameters), None)
        if own is not None:
            raise Missing(f"the model's forward takes its past as {own!r}, of a type of its own")
        raise Missing("the model's forward takes no cache")
    if (why := probe(subject).why_missing("causal")) is not None:
        raise Missing(f"the model is not causal: {why}")


@capability("cache")
def _cache(subject: Subject) -> None:
    needs(subject, "cached-generation")
    try:
        cache = subject(prompt(subject), keep=True, states=False).cache
    except REFUSALS as error:  # a model that takes a cache and breaks on it breaks its laws
        return pass_on(error)
    if cache is None:
        raise Missing("the model's forward returns a cache only if it is given one")
    if _wants_the_past_again(subject):
        raise Missing("with a cache the model requires the whole prompt, not only the new tokens")


def _wants_the_past_again(subject: Subject) -> bool:
    """Whether a whole prompt, with the cache of all but its last token, gives only that row."""
    ids = prompt(subject)
    if subject.is_encoder_decoder or ids.shape[1] < 3:
        return False
    try:
        filled = subject(ids[:, :-1], keep=True, states=False).cache
        request = Pass(ids, None, None, None, filled, keep=True, states=False, options={})
        positional, named = passes.called_with(subject, request)
        with torch.no_grad():
            output = subject.model(*positional, **named)
    except REFUSALS as error:
        pass_on(error)
        return False
    return "logits" in output and output["logits"].shape[1] == 1


@capability("chunks-beside-cache")
def _chunks_beside_cache(subject: Subject) -> None:
    """Takes several tokens at once with a filled cache.

    Only the model's own error counts as a refusal: one that breaks on them breaks its laws.
    """
    needs(subject, "cache")
    ids = prompt(subject)
    try:
        filled = subject(ids[:, :1], keep=True, states=False).cache
        subject(ids[:, 1:], cache=filled, keep=True, states=False)
    except (AssertionError, NotImplementedError) as error:
        raise Missing(f"the model's own error: {first_line(error)}") from error
    except REFUSALS as error:
        return pass_on(error)


@capability("mask-beside-cache")
def _mask_beside_cache(subject: Subject) -> None:
    """Takes a mask over past and present with a growing cache."""
    _mask_beside(subject, "default")


@capability("mask-beside-static-cache")
def _mask_beside_static_cache(subject: Subject) -> None:
    """The same with a static cache."""
    _mask_beside(subject, "static")


def _mask_beside(subject: Subject, kind: str) -> None:
    """Raise `Missing` where a mask of past and present changes the output with a cache.

    Some models need it cut to the present or widened to the cache, which is left to the caller.
    The test is a mask of ones: it must change nothing, and one row stays one row in every module.
    Where rows are multiplied by the mask, a step's one row becomes as many as the mask is wide.
    The output may hide those: a convolution over two tokens reads only the last.
    """
    needs(subject, "cache")
    needs(subject, "padding")
    ids = subject.content(torch.arange(8, device=subject.device).reshape(2, 4) * 7 + 3)
    spare = 4  # room beyond the mask
    try:
        with _widest(subject) as usual_widths:
            without = caches.decode(subject, ids, [1, 1, 1, 1], kind, spare=spare)
    except REFUSALS as error:  # a model that breaks on its cache breaks its laws
        return pass_on(error)
    no = f"the model takes no mask of cached and new tokens with a {kind} cache"
    try:
        ones = torch.ones_like(ids)
        with _widest(subject) as widths:
            masked = caches.decode(subject, ids, [1, 1, 1, 1], kind, spare=spare, mask=ones)
        same = agree(subject, masked, without)
    except REFUSALS as error:
        message = textwrap.shorten(first_line(error), 100, placeholder=" …")
        raise Missing(f"{no}: {message}") from error
    if wider := [name for name, rows in widths.items() if rows > usual_widths.get(name, rows)]:
        raise Missing(f"{no}: it makes several rows from one token's, in {wider[0]}")
    if not same:
        raise Missing(f"{no}: a mask that hides nothing changes the output")


@contextmanager
def _widest(subject: Subject) -> Iterator[dict[str, int]]:
    """The most rows [batch, rows, features] that each module returned in the block, by name."""
    most: dict[str, int] = {}

    def note(name: str, output: Any) -> None:
        if torch.is_tensor(output) and output.ndim == 3:
            most[name] = max(output.shape[1], most.get(name, 0))

    def hook(name: str, module: nn.Module) -> Any:
        return module.register_forward_hook(lambda _, inputs, output: note(name, output))

    hooks = [hook(name, module) for name, module in subject.model.named_modules()]
    try:
        yield most
    finally:
        for each in hooks:
            each.remove()


@capability("kv-cache")
def _kv_cache(subject: Subject) -> None:

    needs(subject, "cache")
    cache_ = subject(prompt(subject), keep=True, states=False).cache
    if isinstance(cache_, tuple):
        raise Missing("in this version of transformers the model returns its cache as tuples")
    if not caches.entries(cache_):
        raise Missing("the cache holds a recurrent state, no keys and values")


@capability("recurrent-state")
def _recurrent(subject: Subject) -> None:
    needs(subject, "cache")
    if "kv-cache" in probe(subject):
        raise Missing("the cache holds keys and values")


@capability("recurrence")
def _recurrence(subject: Subject) -> None:
    """Keeps a state in some layer, by a recurrence or a convolution."""
    needs(subject, "cache")
    if not carries_state(subject(prompt(subject), keep=True, states=False).cache):
        raise Missing("the cache holds keys and values and nothing else")


def carries_state(cache: Any) -> bool:
    """Whether some layer keeps a state of a recurrence or a convolution, with keys or without.

    A cache of a model's own type may keep it outside its layers.
    """
    own = getattr(cache, "self_attention_cache", cache)
    if isinstance(own, tuple):  # keys and values of each layer, before 4.54
        return False
    layers = getattr(own, "layers", None)
    if layers is None or not caches.entries(cache):
        return not caches.entries(cache)
    beside = [value for name, value in vars(own).items() if name != "layers"]
    return any(hasattr(layer, "recurrent_states") for layer in layers) or _holds_states(beside)


def _holds_states(value: Any) -> bool:
    """Whether ``value`` contains a floating-point tensor, at any depth."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return any(_holds_states(item) for item in value)
    return torch.is_tensor(value) and value.is_floating_point()
