"""A slice of a large model: its own first blocks, and a part of its vocabulary.

A law about caches, masks, positions or padding says the same of the first blocks as of all.  A
slice is the smallest prefix of the blocks that holds every kind of them, two at least, and at
most `TOKENS` rows of the vocabulary: the first ids, and the special ones, renumbered.  It is a
model of the same class, built from a changed configuration, which cuts both stacks of an
encoder-decoder.  It shares the whole model's weights, apart from the rows of the vocabulary and
the buffers.  Its last block's output is compared with the whole model's at that depth: a slice
that computes something else is never used.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as hooks

from assay.harness.models.machine.shortage import pass_on
from assay.harness.models.machine.weights import is_dispatched, is_quantised
from assay.harness.models.reference.copying import HOOKS
from assay.harness.models.reference.tolerances import EQUAL_RUNS, distance
from assay.harness.models.subject import Subject, compat, lengths
from assay.harness.models.subject.encoders import arguments
from assay.harness.models.subject.memo import memo
from assay.harness.results.errors import REFUSALS, Missing, brief

LEAST_BLOCKS = 2
"""The fewest blocks of a slice: what one block hands on to the next is then seen."""

TOKENS = 4096
"""Rows of the vocabulary in a slice: a head of this size takes less time than its blocks."""

COMPARED = 24
"""Tokens of the prompt by which a slice is compared with the whole model."""

SPECIAL = re.compile(r"\w*token_(ids?|index)|(mask|unk|pad|bos|eos|sep|cls)_index")
"""Names of a configuration's fields that hold ids."""

STACK = re.compile(r"(num_)?((en|de)coder_)?(hidden_)?layers")
"""Names of a configuration's fields that count the blocks of a stack."""


@dataclass(frozen=True)
class Slice:
    """``subject`` is the slice, without a tokenizer, of a model of ``layers`` blocks and
    ``vocabulary`` tokens; ``ids`` [n] are the whole model's ids of its own, in order.
    """

    subject: Subject
    layers: int
    vocabulary: int
    ids: Tensor

    def __str__(self) -> str:
        first, tokens = self.subject.layers, len(self.ids)
        return (
            f"the first {first} of {self.layers} blocks and {tokens} of {self.vocabulary} tokens"
        )


@memo
def part_of(subject: Subject) -> Slice | str:
    """The slice of ``subject`` that laws are decided on; for a large model that is not sliced, why
    not, and empty for a small one.
    """
    if not lengths.is_sliced(subject):
        return ""
    try:
        return slice_of(subject)
    except Missing as missing:
        return str(missing)


def slice_of(subject: Subject, tokens: int = TOKENS, blocks: int = LEAST_BLOCKS) -> Slice:
    """The slice of ``subject`` with as many ``tokens`` and ``blocks``, or more where these do not
    hold every kind; raises `Missing`, with the reason, where the model has to be whole.

    Takes memory for the rows of the vocabulary and the buffers.
    """
    if why := _whole(subject):
        raise Missing(f"examined whole: {why}")
    try:
        part = _sliced(subject, tokens, blocks)
        _compare(part, subject)
    except Missing as missing:
        raise Missing(f"examined whole: {missing}") from missing
    except REFUSALS as error:  # whatever a constructor of the library raises
        pass_on(error)
        raise Missing(f"examined whole: its slice ends in {brief(error)}") from error
    return part


def _whole(subject: Subject) -> str:
    """Why a model cannot be sliced, as far as that is known before trying; empty if it can."""
    model: Any = subject.model
    if compat.is_wrapped(model) or not compat.is_of_the_library(model):
        return "its class is not one of transformers"
    if model.config.is_encoder_decoder and not subject.is_encoder_decoder:
        return "it is one of an encoder-decoder's two stacks"
    if is_quantised(model) or is_dispatched(model):
        return "its weights are quantised, or offloaded"
    if getattr(subject.config, "num_kv_shared_layers", None):
        return "its blocks share keys and values"
    if subject.injected is None and (where := next(_patched(model), None)) is not None:
        return f"{where or 'the model'} is patched, and a model built again would not be"
    return ""


def _patched(model: nn.Module) -> Iterator[str]:
    """The names of modules of foreign classes, as an adapter's layers are, and of those with a
    foreign hook, or with another forward than their class's.

    The library has hooks of its own, by which it returns the states of every block.
    """
    for name, module in model.named_modules():
        own = vars(module)
        functions = [hook for each in HOOKS for hook in own.get(each, {}).values()]
        if "forward" in own or not all(map(_is_usual, [type(module), *functions])):
            yield name


def _is_usual(thing: Any) -> bool:
    """Whether a class or a function is of torch or transformers."""
    return getattr(thing, "__module__", "").startswith(("torch.", "transformers."))


def _sliced(subject: Subject, tokens: int, least: int) -> Slice:
    layers, vocabulary = subject.layers, subject.vocabulary
    if len(subject.blocks) != layers:
        raise Missing(f"{len(subject.blocks)} blocks serve as its {layers}")
    blocks = max(least, _kinds_held(subject.blocks, subject.config))
    if subject.is_encoder_decoder:
        blocks = max(blocks, _kinds_held(_of_encoder(subject), subject.config))
    ids = _kept_ids(subject, tokens)
    if blocks >= layers and len(ids) == vocabulary:
        raise Missing("it takes all blocks to hold every kind, and the vocabulary is small")
    config = _configuration(subject, blocks, ids)
    with _without_memory(), torch.random.fork_rng(devices=[]):
        model = type(subject.model)(config)
    _take_tensors(model.eval(), subject.model, ids)
    if subject.injected is None:
        _require_same_settings(model, subject, config, ids)
    if (generation := getattr(subject.model, "generation_config", None)) is not None:
        model.generation_config = _renumbered(copy.deepcopy(generation), ids)
    if subject.injected is not None:
        subject.injected.sow(model, loaded=False)
    settings = subject.settings
    if settings.float64 == "auto":  # a copy of a few blocks is small, and has gradients
        settings = replace(settings, float64="copy")
    part = Subject(
        subject.name,
        model,
        injected=subject.injected,
        settings=settings,
        offer=subject.offer,
        provenance=subject.provenance,
    )
    return Slice(part, layers, vocabulary, ids)


# -- what is cut ----------------------------------------------------------------------------------


def _kinds_held(stack: nn.ModuleList, config: Any) -> int:
    """The length of the smallest prefix of the blocks that holds every kind of them.

    Blocks are of a kind if their modules, shapes and settings are equal, and their entries in the
    configuration's lists.  Numbers that count the blocks tell no kinds apart.
    """
    each = [dict(_traits(block)) for block in stack]
    for name, values in _by_layer(config).items():
        for traits, value in zip(each, values, strict=False):  # an encoder may be deeper
            traits[name] = repr(value)
    columns = {name: [traits.get(name) for traits in each] for traits in each for name in traits}
    telling = [values for values in columns.values() if not _counts(values)]
    kinds = list(zip(*telling, strict=True))
    return 1 + max(kinds.index(kind) for kind in kinds)


def _of_encoder(subject: Subject) -> nn.ModuleList:
    """The blocks of an encoder-decoder's encoder."""
    modules = subject.model.get_encoder().modules()
    return next(each for each in modules if isinstance(each, nn.ModuleList))


def _traits(block: nn.Module) -> Iterator[tuple[str, Any]]:
    """What a block is made of: classes, shapes, and settings that are no floating-point numbers
    (some differ from block to block, as the rates of dropout).
    """
    for name, module in block.named_modules():
        yield name, type(module)
        for key, value in vars(module).items():
            if isinstance(value, bool | int | str | None):
                yield f"{name}.{key}", value
    for name, parameter in block.named_parameters():
        yield name, parameter.shape


def _counts(values: list[Any]) -> bool:
    """Whether the ``values``, of the blocks that have one, count the blocks."""
    numbers = [(index, value) for index, value in enumerate(values) if value is not None]
    if not all(type(value) is int for _, value in numbers):
        return False
    offsets = {value - index for index, value in numbers}
    return len(offsets) == 1 and (len(numbers) > 1 or offsets <= {0, 1})


def _by_layer(config: Any) -> dict[str, list[Any]]:
    """The lists of a configuration with an entry for each layer."""
    layers = getattr(config, "num_hidden_layers", 0)
    lists = {n: v for n, v in config.to_dict().items() if isinstance(v, list | tuple)}
    return {name: list(values) for name, values in lists.items() if len(values) == layers > 1}


def _kept_ids(subject: Subject, tokens: int) -> Tensor:
    """The ids that a slice keeps, in order: the special ones, and the first of the others.

    Their number is odd where the whole's is: two processes cannot share it equally.
    """
    vocabulary = subject.vocabulary
    tokens -= (tokens - vocabulary) % 2
    settings = [subject.model.config.to_dict()]
    if (generation := getattr(subject.model, "generation_config", None)) is not None:
        settings.append(generation.to_dict())
    special = {i for each in settings for i in _special(each) if 0 <= i < vocabulary}
    others = (i for i in range(vocabulary) if i not in special)
    return torch.tensor(sorted({*special, *islice(others, max(0, tokens - len(special)))}))


def _special(settings: dict[str, Any]) -> Iterator[int]:
    """The ids in a configuration and its parts."""
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _special(value)
        elif SPECIAL.fullmatch(str(name)):
            each = value if isinstance(value, list | tuple) else [value]
            yield from (i for i in each if type(i) is int)


def _renumbered(config: Any, ids: Tensor) -> Any:
    """``config`` with the places of its special ids in ``ids``; changes it and its parts."""
    places = {i: place for place, i in enumerate(ids.tolist())}
    for name, value in config.to_dict().items():
        if SPECIAL.fullmatch(name):
            if isinstance(value, list | tuple):
                setattr(config, name, [places.get(i, i) for i in value])
            elif type(value) is int:
                setattr(config, name, places.get(value, value))
    for name in getattr(config, "sub_configs", {}):
        if getattr(config, name, None) is not None:
            _renumbered(getattr(config, name), ids)
    return config


def _configuration(subject: Subject, blocks: int, ids: Tensor) -> Any:
    """The whole model's configuration with fewer blocks and ids."""
    config = _renumbered(copy.deepcopy(subject.model.config), ids)
    text = config.get_text_config(decoder=True)
    stacks = [text]
    if subject.is_encoder_decoder:  # ``text`` is a copy, with other names
        stacks = [config, *(getattr(config, name) for name in config.sub_configs)]
    for each in filter(None, stacks):
        lists = _by_layer(each)
        for name in ("num_hidden_layers", *filter(STACK.fullmatch, each.to_dict())):
            if type(count := getattr(each, name, None)) is int:
                setattr(each, name, min(count, blocks))
        for name, values in lists.items():
            setattr(each, name, values[:blocks])
    for each in {id(each): each for each in (config, *stacks)}.values():
        if getattr(each, "vocab_size", None) == subject.vocabulary:
            each.vocab_size = len(ids)
    return config


# -- what is shared -------------------------------------------------------------------------------


@contextmanager
def _without_memory() -> Iterator[None]:
    """Build a model whose parameters have shapes only, and whose buffers have their numbers."""

    def emptied(_module: Any, _name: str, parameter: nn.Parameter | None) -> Any:
        if parameter is None or parameter.is_meta:
            return None  # stays as it is
        return nn.Parameter(parameter.to("meta"), requires_grad=False)

    handle = hooks.register_module_parameter_registration_hook(emptied)
    try:
        yield
    finally:
        handle.remove()


def _take_tensors(model: nn.Module, whole: nn.Module, ids: Tensor) -> None:
    """Give ``model`` the parameters of ``whole``, shared as they are there, and its buffers.

    Raises `Missing` for one that the whole model does not have, or has in another shape.
    """
    parameters = dict(whole.named_parameters(remove_duplicate=False))
    shared: dict[int, nn.Parameter] = {}
    for name, like in list(model.named_parameters(remove_duplicate=False)):
        source = parameters.get(name)
        if source is None:
            raise Missing(f"its slice has a weight {name}, which the model lacks")
        if id(source) not in shared:
            numbers = _cut(name, source.detach(), like.shape, ids)
            shared[id(source)] = nn.Parameter(numbers, requires_grad=source.requires_grad)
        _owner(model, name)._parameters[name.rpartition(".")[2]] = shared[id(source)]
    buffers = dict(whole.named_buffers())
    for name, own in list(model.named_buffers()):
        if (held := buffers.get(name)) is None:
            raise Missing(f"its slice has a buffer {name}, which the model lacks")
        numbers = _cut(name, held.detach(), own.shape, ids)
        _owner(model, name)._buffers[name.rpartition(".")[2]] = numbers.clone()


def _owner(model: nn.Module, name: str) -> nn.Module:
    return model.get_submodule(name.rpartition(".")[0])


def _cut(name: str, source: Tensor, shape: torch.Size, ids: Tensor) -> Tensor:
    """``source``, or its rows or columns ``ids`` where the slice has as many."""
    if source.shape == shape:
        return source
    for dim in range(source.ndim):
        cut = (*source.shape[:dim], len(ids), *source.shape[dim + 1 :])
        if shape == cut and source.shape[dim] > int(ids.max()):
            return source.index_select(dim, ids.to(source.device))
    raise Missing(f"{name} of its slice is {[*shape]}, and {[*source.shape]} in the model")


# -- whether it is the model's --------------------------------------------------------------------


def _require_same_settings(model: nn.Module, subject: Subject, config: Any, ids: Tensor) -> None:
    """Raise `Missing` where a module has another setting than in the whole model.

    Those that are the number of blocks or tokens, or a special id, differ.
    """
    part = config.get_text_config(decoder=True)
    changed = {(subject.layers, part.num_hidden_layers), (subject.vocabulary, len(ids))}
    changed |= {(i, place) for place, i in enumerate(ids.tolist())}
    for name, module in model.named_modules():
        held = vars(subject.model.get_submodule(name))
        for key, value in vars(module).items():
            if not isinstance(value, bool | int | float | str | None) or key not in held:
                continue
            if held[key] != value and (held[key], value) not in changed:
                where = name or "the model"
                raise Missing(f"{key} of {where} is {held[key]!r}, and {value!r} in its slice")


def _compare(part: Slice, whole: Subject) -> None:
    """Raise `Missing` unless the slice's last block gives what the whole model's gives."""
    own, depth = part.subject, part.subject.layers
    n = min(COMPARED, whole.context or COMPARED, len(part.ids))
    ids = own.content(torch.arange(n, device=own.device)[None] * 7)
    own_ids, beside = part.ids.to(whole.device)[ids], dict[str, Any]()
    if whole.is_encoder_decoder:
        deep = len(_of_encoder(own))
        beside = arguments(own, ids)  # both decoders read the slice's encoder
        states = [_encoded(own, ids, deep)]
        states += [_encoded(whole, own_ids, deep) for _ in range(2)]
        _require_equal(states, whole.dtype, f"block {deep} of the encoder")
    outputs = [own.block_output(depth, ids, **beside)]
    outputs += [whole.block_output(depth, own_ids, **beside) for _ in range(2)]
    _require_equal(outputs, whole.dtype, f"block {depth}")


def _encoded(subject: Subject, ids: Tensor, depth: int) -> Tensor:
    """The output of block ``depth`` of the encoder."""
    states: list[Any] = []
    block = _of_encoder(subject)[depth - 1]
    handle = block.register_forward_hook(lambda _module, _inputs, result: states.append(result))
    try:
        subject.encode(ids)
    finally:
        handle.remove()
    state = states[0]
    return state if torch.is_tensor(state) else state[0]


def _require_equal(outputs: list[Tensor], dtype: torch.dtype, where: str) -> None:
    """Raise `Missing` unless the slice's output is the whole model's, which was computed twice."""
    observed, expected, again = outputs
    if torch.equal(observed, expected):
        return
    error = float(distance(observed, expected).max())
    if not error <= EQUAL_RUNS[dtype].allowed(float(distance(again, expected).max())):
        raise Missing(f"the output of {where} of its slice differs by {error:.1e}")
