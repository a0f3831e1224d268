"""Models whose weights are quantised, and the same weights in floating point.

A model is quantised while transformers loads it from a folder, by the package of a method.  Of
those that transformers takes, bitsandbytes quantises without a calibration and has kernels for
every processor; the others need a GPU, a calibrated checkpoint, or (torchao) change what
transformers imports.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from assay.harness.checking.comparing import Unsettled
from assay.harness.checking.reference import Reference
from assay.harness.checking.sensitivity import GOALS
from assay.harness.models.capabilities import Missing, require
from assay.harness.models.loading.checkpoints import class_to_load
from assay.harness.models.machine import quantised_weights, weights
from assay.harness.models.machine.shortage import ENDS, pass_on
from assay.harness.models.reference import dense_weights, modified, precision
from assay.harness.models.reference.copying import copy_model
from assay.harness.models.reference.float64 import reference_of
from assay.harness.models.reference.tolerances import (
    ROUTER_GAP,
    TOLERANCES,
    Tolerance,
    bit_equal,
    one_bit_off,
)
from assay.harness.models.subject import Subject, compat
from assay.harness.models.subject.memo import memo
from assay.harness.operations import int8, variants
from assay.harness.results.errors import brief
from assay.harness.results.quiet import quiet

OWN, EIGHT, FOUR = "its own", "8 bits", "4 bits"
"""Whose quantised weights: the subject's, or those of a copy by bitsandbytes."""

BLOCK = 64
"""Numbers with one scale, in 4 bits.  A kernel of some processors takes rows of whole blocks."""

MOST_DIMENSIONS = 3
"""Of an input whose rows bitsandbytes quantises."""

SEES = 0.3
"""The leak that the law must see where activations have 8 bits: rounding moves rows by hundredths.
"""

ROWS = 32
"""Rows that the kernel takes together."""

SLIGHTLY, GREATLY = 1.01, 2.0
"""Factors of a scale: one that float32 shows, and one that 16 bits show."""


def of(subject: Subject, which: str) -> Subject:
    """The subject, or a copy of it, with quantised weights.

    Raises `Missing` where the subject's are not quantised, or no copy's can be.
    """
    if which == OWN:
        require(subject, "quantised-weights")
        return subject
    require(subject, "weights-in-memory")
    copies = _copies(subject)
    if which not in copies:
        copies.clear()  # one copy at a time
        copies[which] = _by_bitsandbytes(subject, which)
    return copies[which]


@memo
def _copies(subject: Subject) -> dict[str, Subject]:
    return {}


def unused(subject: Subject, which: str) -> Subject:
    """`of`, where it can be saved: a copy is one that no pass has run.

    On some processors the first pass lays 4-bit weights out for a kernel.  Saving undoes that, and
    leaves scales in a wrong order, in the file and in the model (bitsandbytes 0.50,
    ``_convert_weight_packed_for_cpu_inverse``).  Raises `Missing` where this has happened.
    """
    if which != OWN:
        require(subject, "weights-in-memory")
        return _by_bitsandbytes(subject, which)
    require(subject, "quantised-weights")
    states = (getattr(weight, "quant_state", None) for weight in subject.model.parameters())
    if any(getattr(state, quantised_weights.LAID_OUT, False) for state in states):
        raise Missing("its weights are laid out for a kernel, and bitsandbytes loses their scales")
    return subject


def _by_bitsandbytes(subject: Subject, which: str) -> Subject:
    if find_spec("bitsandbytes") is None or find_spec("accelerate") is None:
        raise Missing(f"{which}: bitsandbytes and accelerate are not installed")
    from transformers import BitsAndBytesConfig

    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # a warning in every pass
    settings: Any = BitsAndBytesConfig(load_in_8bit=True)
    if which == FOUR:
        settings = BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16
        )
    with variants.saved(subject) as folder:
        try:
            model = _loaded(subject, folder, quantization_config=settings)
        except ENDS as error:
            pass_on(error)
            raise Missing(f"{which}: the model is not loaded so ({brief(error)})") from error
    if next(weights.packed(model), None) is None:
        raise Missing(f"{which}: bitsandbytes quantises no layer of the model")
    _require_blocks(model)
    quantised = modified.of_same_code(subject, f"{subject.name} in {which}", model)
    # To look for them takes a pass in an encoder-decoder, and no pass may run yet (`unused`).
    quantised.input_embeddings = _counterpart(subject.input_embeddings, subject.model, model)
    _require_rows(quantised, which)
    return quantised


def _counterpart(module: nn.Module | None, model: nn.Module, other: nn.Module) -> nn.Module | None:
    """The module of ``other`` that stands where ``module`` stands in ``model``."""
    names = (name for name, each in model.named_modules() if each is module)
    return next(map(other.get_submodule, names), None)


def _require_blocks(model: nn.Module) -> None:
    for name, module in model.named_modules():
        four = type(module).__name__ == weights.FOUR_BITS_LAYER
        if four and int(module.in_features) % BLOCK:
            raise Missing(f"{FOUR}: rows of {name} are not whole blocks of {BLOCK} numbers")
        if four and int(module.out_features) % ROWS:
            raise Missing(f"{FOUR}: {name} has not {ROWS} rows or a multiple of that")


def _require_rows(quantised: Subject, which: str) -> None:
    """Raise `Missing` where a layer's input has more dimensions than bitsandbytes takes."""
    plain, deep = dense(quantised), []

    def look(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if inputs[0].ndim > MOST_DIMENSIONS:
            deep.append(inputs[0].ndim)

    names = [name.rpartition(".")[0] for name in packed(quantised)]
    hooks = [plain.model.get_submodule(name).register_forward_pre_hook(look) for name in names]
    try:
        ids = torch.arange(max(2, plain.shortest), device=plain.device)[None]
        plain.rows(plain.content(ids), states=False)
    finally:
        for hook in hooks:
            hook.remove()
    if deep:
        most = MOST_DIMENSIONS
        why = f"a layer's input has {deep[0]} dimensions, and bitsandbytes takes {most} at most"
        raise Missing(f"{which}: {why}")


def _loaded(subject: Subject, folder: str, **settings: Any) -> Any:
    model_class = class_to_load(subject.model, folder)
    with quiet():
        model = model_class.from_pretrained(
            folder,
            **compat.in_dtype(subject.dtype),
            **quantised_weights.placed_on(subject.device),
            **settings,
        )
    model.eval().requires_grad_(False)
    compat.set_attention(model, subject.attention)
    return model


@contextmanager
def saved_and_loaded(quantised: Subject) -> Iterator[Subject]:
    """The model with its quantised weights saved, and loaded again, within a block.

    Raises `Missing` where its package saves none.
    """
    model: Any = quantised.model
    with tempfile.TemporaryDirectory() as folder:
        try:
            with quiet(), variants.unchanged_configuration(model):
                model.save_pretrained(folder)
        except ENDS as error:
            pass_on(error)
            raise Missing(f"its quantised weights cannot be saved ({brief(error)})") from error
        again = _loaded(quantised, folder)
    yield modified.of_same_code(quantised, f"{quantised.name}, saved and loaded", again)


@memo
def dense(quantised: Subject) -> Subject:
    """A copy whose weights are the values that the integers stand for, in the model's own dtype.

    It needs no kernel of a package.  Raises `Missing` where the weights cannot be unpacked.
    """
    model: Any = dense_weights.in_dtype(copy_model(quantised.model), quantised.dtype)
    model.hf_quantizer = None
    return variants.copied_as(quantised, f"{quantised.name}, dequantised", model)


def reference(quantised: Subject, ids: Tensor) -> Reference:
    """The dense copy's rows for ``ids`` [batch, n], and those of the dense weights in float64.

    Where the method rounds activations to 8 bits, the dense copy rounds them as LLM.int8 does; and
    where it computes in a narrower dtype, the copy is in that.
    """
    plain = dense(quantised)
    if weights.rounds_activations(quantised.model):
        plain = _rounding(quantised)
    elif torch.finfo(_computes_in(quantised)).eps > torch.finfo(quantised.dtype).eps:
        plain = _narrower(quantised)
    return Reference(plain.rows(ids), reference_of(quantised).rows(ids))


def require_judgeable(quantised: Subject, expected: Reference) -> None:
    """Raise `Unsettled` where rounding activations to 8 bits alone moves a row so far that nothing
    can be said of the kernel.

    A model may amplify it, by attention that is not scaled or near-ties between experts.
    """
    if not weights.rounds_activations(quantised.model):
        return
    allows = tolerance(quantised)
    errors = expected.errors(ROUTER_GAP * allows.floor).values()
    if any(allows.is_capped(distance.error) for distance in errors):
        raise Unsettled("rounding activations to 8 bits moves a row farther than any bound allows")


@memo
def _rounding(quantised: Subject) -> Subject:
    """The dense copy with `int8.Int8` in place of the layers that are quantised."""
    plain = dense(quantised)
    model: Any = copy_model(plain.model, {id(each): each for each in plain.model.parameters()})
    for name in packed(quantised):
        parent, _, last = name.rpartition(".")[0].rpartition(".")
        layer = model.get_submodule(f"{parent}.{last}".removeprefix("."))
        setattr(model.get_submodule(parent), last, int8.Int8(layer.weight, layer.bias))
    return variants.copied_as(plain, plain.name, model)


@memo
def _narrower(quantised: Subject) -> Subject:
    plain = dense(quantised)
    model: Any = nn.Module.to(copy_model(plain.model), _computes_in(quantised))
    return variants.copied_as(plain, plain.name, model)


def tolerance(quantised: Subject) -> Tolerance:
    """What the dtype allows in which the model computes."""
    dtype = _computes_in(quantised)
    eight = weights.rounds_activations(quantised.model)
    return replace(TOLERANCES[dtype], sees=SEES if eight else GOALS[dtype].other)


def _computes_in(quantised: Subject) -> torch.dtype:
    four = weights.FOUR_BITS_LAYER
    if any(type(module).__name__ == four for module in quantised.model.modules()):
        return torch.bfloat16  # on some processors, whatever dtype is asked for
    return precision.working(quantised)


def factor(quantised: Subject) -> float:
    """By how much a wrong scale is off that is to be noticed in the rows."""
    wide = torch.finfo(_computes_in(quantised)).bits > torch.finfo(torch.float16).bits
    return SLIGHTLY if wide else GREATLY


@contextmanager
def rescaled(subject: Subject, packed: list[str], by: float) -> Iterator[None]:
    """Multiply the first block of each of the weights ``packed``, half of its rows where ``by`` is
    `GREATLY`, within a block: what the dense copy ``subject`` has where scales are wrong.  A norm
    after a layer would hide that all of its scales are.
    """
    named = dict(subject.model.named_parameters())
    originals = {name: named[name].data for name in packed if name in named}
    try:
        for name, weight in originals.items():
            numbers = weight.clone()
            half = (len(numbers) + 1) // 2
            (numbers[:half] if by == GREATLY else numbers[:1, :BLOCK]).mul_(by)
            named[name].data = numbers
        yield
    finally:
        for name, weight in originals.items():
            named[name].data = weight


def packed(quantised: Subject) -> list[str]:
    """The names of the quantised weights."""
    return sorted(weights.packed(quantised.model))


def share_that_differs(one: Subject, other: Subject, moved: str = "") -> float:
    """The largest share, 0 to 1, of elements of any parameter or buffer of two dense copies that
    differ; the first element of the weight ``moved`` is off by a unit in the last place.
    """
    ours, theirs = one.model.state_dict(), other.model.state_dict()
    if ours.keys() != theirs.keys():
        return 1.0
    if moved:
        theirs[moved] = one_bit_off(theirs[moved])
    return max(bit_equal(tensor, theirs[name]) for name, tensor in ours.items())
