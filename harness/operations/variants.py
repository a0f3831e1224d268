"""Modified copies of a model, for comparison with it: reloaded, untrained, quantised."""

from __future__ import annotations

import copy
import gc
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from assay.harness.models.capabilities import Missing, releases, require
from assay.harness.models.loading import loading
from assay.harness.models.machine import memory
from assay.harness.models.machine.allocation import allocated
from assay.harness.models.machine.shortage import pass_on
from assay.harness.models.reference.copying import cast, copy_model
from assay.harness.models.reference.modified import of_same_code
from assay.harness.models.reference.tolerances import bit_equal, one_bit_off
from assay.harness.models.subject import Subject, compat, lengths
from assay.harness.models.subject.memo import memo
from assay.harness.models.subject.provenance import UNTRAINED
from assay.harness.models.subject.wrapped import Wrapped
from assay.harness.results.errors import REFUSALS, BadInput, brief, first_line, mixes_dtypes

SHARD = 100_000_000
"""Bytes of a file of a large model that is saved and loaded, if no single weight has more."""

COPIES = 1 / 3
"""Share of the free memory that copies of a model may take for the whole run."""


@memo
def saved_and_loaded(subject: Subject) -> Subject:
    """The subject saved as safetensors and loaded again, once for each subject.

    Raises `Missing` where not all weights are in memory.
    """
    return _round_trip(subject, subject.dtype)


def _round_trip(subject: Subject, dtype: torch.dtype) -> Subject:
    with saved(subject) as folder:
        if dtype == subject.dtype and shares_weights(subject):
            model = _by_shards(subject, folder, dtype)
        else:
            model = _from_folder(subject, folder, dtype)
    loaded = of_same_code(subject, f"{subject.name}, saved and loaded", model)
    if loaded.attention != subject.attention:  # set here because at loading all parts must have it
        compat.set_attention(model, subject.attention)
    return loaded


@contextmanager
def saved(subject: Subject) -> Iterator[str]:
    """A folder with the model, in small files where copies share its weights, within a block.

    Raises `Missing` where not all weights are in memory, or the model cannot be saved.
    """
    require(subject, "weights-in-memory")
    require(subject, "saving")
    size: int | str = SHARD if shares_weights(subject) else "1000GB"
    with tempfile.TemporaryDirectory() as folder:
        with unchanged_configuration(subject.model):
            subject.model.save_pretrained(folder, max_shard_size=size)
        yield folder


def _from_folder(subject: Subject, folder: str, dtype: torch.dtype) -> PreTrainedModel:
    try:
        model = loading.load(
            folder, dtype=dtype, device=subject.device, attention=subject.attention
        ).model
    except BadInput:  # a part of a larger model: only its own class can load it
        return _by_own_class(subject, folder, dtype)
    if type(model) is not type(subject.model):  # a class of somebody's own
        return _by_own_class(subject, folder, dtype)
    return model


def _by_shards(subject: Subject, folder: str, dtype: torch.dtype) -> PreTrainedModel:
    """The saved and loaded model with the memory of the subject's weights where they are equal.

    A file's tensors take memory once they are read, and until the last of them is dropped.
    """
    model = type(subject.model).from_pretrained(folder, **compat.in_dtype(dtype))
    share_equal_weights(subject.model, model)
    model.to(subject.device)  # type: ignore[arg-type]  # wrapped
    model.eval().requires_grad_(False)
    return model


def _by_own_class(subject: Subject, folder: str, dtype: torch.dtype) -> PreTrainedModel:
    model = type(subject.model).from_pretrained(folder, **compat.in_dtype(dtype))
    model = model.to(subject.device).eval().requires_grad_(False)  # type: ignore[arg-type]
    allocated(model)
    return model


def holds_copies(device: torch.device, size: int) -> bool:
    """Whether copies of ``size`` bytes may stay in the memory of ``device``."""
    return size <= COPIES * memory.free(device)


def fits_twice(subject: Subject) -> bool:
    """Whether free memory holds another model of the subject's size."""
    size = sum(weight.numel() * weight.itemsize for weight in subject.model.parameters())
    return holds_copies(subject.device, size)


def shares_weights(subject: Subject) -> bool:
    """Whether what is loaded again takes the memory of the subject's weights where bits are equal:
    of a large model, whose slice is loaded into memory of its own, and where memory is short.
    Not with an injected fault, which would change the weights of both.
    """
    return subject.injected is None and (lengths.is_sliced(subject) or not fits_twice(subject))


def share_equal_weights(model: PreTrainedModel, loaded: PreTrainedModel) -> None:
    """Give ``loaded`` the memory of ``model``'s weights, one by one, where bits are equal."""
    own = dict(model.named_parameters())
    for name, weight in loaded.named_parameters():
        if name in own and own[name].dtype == weight.dtype:
            theirs = weight.detach().to(own[name].device)
            if bit_equal(theirs, own[name]) == 0.0:
                weight.data = own[name].data


@contextmanager
def unchanged_configuration(model: PreTrainedModel) -> Iterator[None]:
    """For a block in which the model is saved, which sets fields of its configuration."""
    before = dict(vars(model.config))
    try:
        yield
    finally:
        vars(model.config).clear()
        vars(model.config).update(before)


@memo
def in_bfloat16(subject: Subject) -> Subject:
    """The subject saved and then loaded in bfloat16; raises `Missing` if that is its own dtype.

    Loaded rather than converted: loading keeps the precision of some tensors, as of rotary angles.
    Raises `Missing` as well where an operation of the model has no such dtype.  Raises what the
    loaded model raised where it runs once its weights are converted, since loading left out some
    of them, and where the model gives an operation two dtypes at once.
    """
    if subject.dtype == torch.bfloat16:
        raise Missing("the model already runs in bfloat16")
    rounded = _round_trip(subject, torch.bfloat16)
    if (refusal := _refusal(rounded)) is None:
        return rounded
    cast(rounded.model, torch.bfloat16)
    if (converted := _refusal(rounded)) is None or mixes_dtypes(converted):
        raise refusal
    raise Missing(f"bfloat16: the model does not run in it ({brief(refusal, 100)})") from refusal


def _refusal(subject: Subject) -> BaseException | None:
    """What a pass of the shortest prompt raises, if anything."""
    shortest = torch.arange(subject.shortest, device=subject.device)[None]
    try:
        subject.rows(subject.content(shortest))
    except REFUSALS as error:
        pass_on(error)
        return error
    return None


def in_dtype(subject: Subject, dtype: torch.dtype) -> Subject:
    """The subject saved and loaded in ``dtype``; of a plain module a copy with its parameters
    cast, and its buffers if it does not run otherwise.  Raises `Missing` if there is no copy.
    """
    if not isinstance(subject.model, Wrapped):
        return _round_trip(subject, dtype)
    try:
        model = copy_model(subject.model)
    except REFUSALS as error:
        pass_on(error)
        raise Missing(f"the model cannot be copied ({brief(error, 100)})") from error
    cast(model, dtype, buffers=False)
    other = of_same_code(subject, subject.name, model)
    if _refusal(other) is not None:
        cast(model, dtype)
    return other


def copied_as(subject: Subject, name: str, model: PreTrainedModel) -> Subject:
    """The subject of ``model``, a copy of the subject's: without the record of injected faults."""
    return Subject(
        *(name, model, subject.tokenizer),
        settings=subject.settings,
        provenance=subject.provenance,
    )


def sharing_weights(subject: Subject) -> Subject:
    """A copy of the subject with its own weights, in which a trace may leave what it likes."""
    own = {id(each): each for each in subject.model.parameters()}
    with ExitStack() as pauses:
        for clock in subject.clocks:
            pauses.enter_context(clock.paused())
        model = copy_model(subject.model, own)
    return copied_as(subject, f"{subject.name}, traced", model)


KEPT_SHARE = 0.125
"""Share of the memory for untrained copies of a model that are kept; the last one always is."""


def untrained(subject: Subject, seed: int = 0) -> Subject:
    """A model of the same configuration with fresh weights from ``seed``.

    As many as `KEPT_SHARE` of the memory holds are kept, those used last, and others made again.
    Raises `Missing` where it cannot be built from its configuration alone, or where the subject's
    own weights are not all in memory: the copy's would have to be.
    """
    require(subject, "weights-in-memory")
    copies = _untrained(subject)
    if seed not in copies:
        _make_room(copies, subject)
        copies[seed] = fresh(subject, seed)
    copies[seed] = copies.pop(seed)  # the last is the one used last
    return copies[seed]


def _make_room(copies: dict[int, Subject], subject: Subject) -> None:
    """Drop the copies that were not used for longest until another one fits."""
    each = subject.model.get_memory_footprint()
    room = KEPT_SHARE * (memory.free(subject.device) + len(copies) * each)
    while copies and (len(copies) + 1) * each > room:
        del copies[next(iter(copies))]
        gc.collect()  # a model and the answers about it refer to each other


@memo
def _untrained(subject: Subject) -> dict[int, Subject]:
    return {}


def fresh(subject: Subject, seed: int) -> Subject:
    """`untrained` without caching: for claims that need more models than fit in memory.

    Raises what `untrained` raises.
    """
    require(subject, "weights-in-memory")
    own: Any = subject.model
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            model = type(own)(copy.deepcopy(own.config))
        except Exception as error:  # a class that needs more than a configuration
            pass_on(error)
            raise Missing(f"no untrained copy: {error}") from error
    model = model.to(device=subject.device, dtype=subject.dtype).eval().requires_grad_(False)
    allocated(model)
    return of_same_code(subject, f"{subject.name}, untrained", model, UNTRAINED)


def quantised(subject: Subject, bits: int = 8) -> Subject:
    """The subject with the blocks' matrices rounded to integers of ``bits``; cached on it.

    Each row of a matrix has a scale of its own, its largest element over the largest number
    (absmax); products are computed in the subject's dtype, as by weight-only quantisation.
    Raises `Missing` where not all weights are in memory.
    """
    require(subject, "weights-in-memory")
    copies = _quantised(subject)
    if bits not in copies:
        model = copy.deepcopy(subject.model)
        allocated(model)
        name = f"{subject.name} in {bits} bits"
        rounded = copied_as(subject, name, model)
        with torch.no_grad():
            for weights in rounded.blocks.parameters():
                if weights.ndim == 2:
                    weights.copy_(round_rows(weights, bits))
        copies[bits] = rounded
    return copies[bits]


@memo
def _quantised(subject: Subject) -> dict[int, Subject]:
    return {}


def round_rows(rows: Tensor, bits: int) -> Tensor:
    """``rows`` [n, features] rounded to integers of ``bits``: each row has a scale (absmax)."""
    largest = rows.abs().amax(1, keepdim=True).clamp_min(torch.finfo(rows.dtype).tiny)
    scale = largest / (2 ** (bits - 1) - 1)
    return torch.mul((rows / scale).round(), scale)


@contextmanager
def _replaced(table: Tensor, numbers: Tensor) -> Iterator[None]:
    """Give ``table`` other ``numbers``, in memory of their own, within a block."""
    original = table.data
    table.data = numbers
    try:
        yield
    finally:
        table.data = original


@contextmanager
def nudge_embedding(subject: Subject, token: int) -> Iterator[None]:
    """Enlarge the embedding of ``token`` by 1 %, within a block."""
    table = subject.embedding_table
    numbers = table.detach().clone()
    numbers[token].mul_(1.01).add_(0.01 * float(table.std()))
    with _replaced(table, numbers):
        yield


@contextmanager
def flip_last_bit(subject: Subject) -> Iterator[None]:
    """Move one element of the embedding matrix by one unit in the last place, within a block."""
    with _replaced(subject.embedding_table, one_bit_off(subject.embedding_table)):
        yield


def require_attention(subject: Subject, implementation: str) -> None:
    """Raise `Missing` unless the subject can attend by another ``implementation`` than its own."""
    if implementation == subject.attention:
        raise Missing(f"{implementation} is the implementation that the model already uses")
    obstacles = _obstacles(subject)
    if implementation not in obstacles:
        obstacles[implementation] = _obstacle(subject, implementation)
    if why := obstacles[implementation]:
        raise Missing(f"the model does not attend by {implementation}: {why}")


@memo
def _obstacles(subject: Subject) -> dict[str, str]:
    """Why the subject does not attend by an implementation, as far as that was looked at."""
    return {}


def _obstacle(subject: Subject, implementation: str) -> str:
    """Why the subject does not attend by an implementation, or empty."""
    try:
        with subject.attending_by(implementation):
            changed = subject.attention == implementation
            reached = implementation in releases.attentions_in_force(subject.model)
            subject(subject.content(torch.arange(3, device=subject.device)[None]))
    except (ValueError, ImportError, NotImplementedError, RuntimeError) as error:
        return first_line(error)
    if not changed:
        return f"it keeps what it was made with, {subject.attention}"
    if not reached:
        return "its parts are not switched, and keep the implementation that they were built with"
    return ""
