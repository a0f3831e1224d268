"""Which argument of a forward pass has which role: the one file that spells the names.

Versions of transformers and classes of users name the same argument differently: a cache is
``past_key_values`` until transformers 5.23 and ``cache`` since 5.24.  `bind` reads the names off a
model's signature; for a cache whose name is not certain, `models.subject.trials` tries them.  All
other code asks for the role.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import Any

import transformers
from torch import Tensor, nn


class Role(StrEnum):
    """What an argument of a forward pass is for."""

    IDS = "ids"
    EMBEDDINGS = "embeddings"
    MASK = "mask"
    POSITIONS = "positions"
    CACHE = "cache"
    KEEP = "keep"  # whether to return a cache
    STATES = "states"  # whether to return the hidden states
    ATTENTIONS = "attentions"  # whether to return the attention weights
    NAMED_OUTPUT = "named_output"  # whether to return a mapping
    ROUTER_LOGITS = "router_logits"  # whether to return the scores of experts
    KEPT_LOGITS = "kept_logits"  # which positions have logits
    LABELS = "labels"
    LABEL_COUNT = "label_count"  # the number that the loss of labels is divided by
    ENCODED = "encoded"  # the encoder's output
    ENCODER_MASK = "encoder_mask"
    NEW_INDICES = "new_indices"  # of the new tokens, for models whose cache does not count
    SAMPLE_EDGES = "sample_edges"  # where packed samples begin and end
    SAMPLE_INDICES = "sample_indices"  # the packed sample of each token


SPELLINGS: dict[Role, tuple[str, ...]] = {
    Role.IDS: ("input_ids",),
    Role.EMBEDDINGS: ("inputs_embeds",),
    Role.MASK: ("attention_mask",),
    Role.POSITIONS: ("position_ids",),
    Role.CACHE: ("past_key_values", "cache", "cache_params", "state"),
    Role.KEEP: ("use_cache",),
    Role.STATES: ("output_hidden_states",),
    Role.ATTENTIONS: ("output_attentions",),
    Role.NAMED_OUTPUT: ("return_dict",),
    Role.ROUTER_LOGITS: ("output_router_logits",),
    Role.KEPT_LOGITS: ("logits_to_keep",),
    Role.LABELS: ("labels",),
    Role.LABEL_COUNT: ("num_items_in_batch",),
    Role.ENCODED: ("encoder_outputs",),
    Role.ENCODER_MASK: ("attention_mask",),
    Role.NEW_INDICES: ("cache_position",),
    Role.SAMPLE_EDGES: ("cu_seq_lens_q", "cu_seq_lens_k"),
    Role.SAMPLE_INDICES: ("seq_idx",),
}
"""The names that transformers gives an argument; of several the first that a model has."""

STATE_NAMES = ("cache_params", "state")
"""Names of a cache that holds the states of a recurrence, and until 5.23 nothing else."""

OF_DECODER = (Role.IDS, Role.EMBEDDINGS, Role.MASK, Role.POSITIONS)
"""Roles whose names begin with ``decoder_`` where a model also has an encoder."""

OTHER_PASTS = ("mems", "past_buckets_states")
"""Arguments of a few old models for their past, each in a shape of its own."""

HINTS: dict[Role, str] = {
    Role.EMBEDDINGS: r"embed",
    Role.MASK: r"attention_?mask|padding_?mask|^mask$",
    Role.POSITIONS: r"^positions?$|position_?(ids|indices)$|^pos(_ids)?$",
    Role.KEEP: r"(use|return|keep)_.*(cache|past|kv|memory|state)",
    Role.KEPT_LOGITS: r"logits.*(keep|kept|last)|(keep|kept|last).*logits",
    Role.LABELS: r"^labels?$|^targets?(_ids)?$",
    Role.STATES: r"(output|return).*hidden",
}
"""Patterns of names that some class may give an argument that the library names otherwise.

A name that fits is only bound: probes (`harness.models.capabilities`) find out what it does.
"""

CACHE_HINT = re.compile(
    r"cache|past|(^|_)kv(_|s?$)|(^|_)mem(s|ory|ories)?$|^(recurrent_)?states?$"
)
"""Names of an argument that may be a cache: trying decides (`harness.models.subject.trials`)."""

DECODER = "decoder_"


@dataclass(frozen=True)
class Bound:
    """The arguments of one model's forward pass.

    ``names`` by role; ``parameters`` are all that the pass names; ``open`` says whether it takes
    others (``**kwargs``); ``caches`` are the names that may be the cache, the likeliest first;
    ``certain`` says that the first of them is known to be.  ``decodes`` says whether there is an
    encoder as well, and the arguments are the decoder's.  Of the ``unknown`` no role is known.
    """

    names: Mapping[Role, str]
    parameters: frozenset[str]
    open: bool
    decodes: bool = False
    caches: tuple[str, ...] = ()
    certain: bool = True
    unknown: tuple[str, ...] = ()

    @property
    def taking_ids(self) -> Bound:
        """The same with ids by the library's name."""
        return replace(self, names={**self.names, Role.IDS: SPELLINGS[Role.IDS][0]})

    @property
    def complete(self) -> bool:
        """Whether the pass takes nothing but arguments whose roles are known."""
        return not self.open and not self.unknown

    def __contains__(self, role: str) -> bool:
        return role in self.names

    def __getitem__(self, role: Role) -> str:
        """The name of the role's argument: the library's own where the pass names none."""
        prefix = DECODER if self.decodes and role in OF_DECODER else ""
        return self.names.get(role, f"{prefix}{SPELLINGS[role][0]}")

    def named(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by name, of values by role; what is no role keeps its name."""
        return {self[Role(key)] if key in _ROLES else key: v for key, v in values.items()}


_ROLES = frozenset(role.value for role in Role)


def bind(forward: Callable[..., Any], classes: Iterator[type] | tuple[type, ...] = ()) -> Bound:
    """The roles of the arguments of ``forward``.

    While the function of a user's own class passes ``**kwargs`` on, the arguments of the class
    that it inherits from (``classes``, nearest first) are its own as well.
    """
    parameters = _parameters(forward)
    several = takes_more(forward)
    defining = [each for each in classes if "forward" in vars(each)]
    for own, base in pairwise(defining):
        if own.__module__.startswith("transformers.") and parameters:
            break  # a class of the library names all that it takes
        if not takes_more(vars(own)["forward"]):
            break
        parameters |= {
            name: annotation
            for name, annotation in _parameters(vars(base)["forward"]).items()
            if name not in parameters
        }
    renamed = dict(_renames(forward))
    decoding = f"{DECODER}{SPELLINGS[Role.IDS][0]}" in parameters
    names: dict[Role, str] = {}
    for role in Role:
        if role is Role.CACHE:
            continue
        prefix = DECODER if decoding and role in OF_DECODER else ""
        spelled = [f"{prefix}{name}" for name in SPELLINGS[role]]
        old = [name for name in parameters if renamed.get(name) in spelled]
        if match := next((name for name in [*spelled, *old] if name in parameters), None):
            names[role] = match
    role_names = {*names.values(), *(name for role in Role for name in spellings(role))}
    unknown = [name for name in parameters if name not in role_names]
    for role, pattern in HINTS.items():
        fits = [name for name in unknown if re.search(pattern, name.removeprefix(DECODER))]
        if role not in names and len(fits) == 1:
            names[role] = fits[0]
    caches, certain = _caches(parameters, renamed)
    if certain and caches:
        names[Role.CACHE] = caches[0]
    bound = {*role_names, *names.values()}
    left = tuple(name for name in parameters if name not in bound)
    return Bound(names, frozenset(parameters), several, decoding, caches, certain, left)


def _caches(
    parameters: Mapping[str, Any], renamed: Mapping[str, str]
) -> tuple[tuple[str, ...], bool]:
    """The names that may be the cache, and whether the first of them is known to be."""
    spelled = [name for name in SPELLINGS[Role.CACHE] if name in parameters]
    typed = [name for name, annotation in parameters.items() if is_cache_type(annotation)]
    old = [name for name in parameters if renamed.get(name) in SPELLINGS[Role.CACHE]]
    hinted = [name for name in parameters if CACHE_HINT.search(name)]
    others = {SPELLINGS[Role.KEEP][0], SPELLINGS[Role.NEW_INDICES][0], *OTHER_PASTS}
    hinted = [n for n in hinted if n not in others and not _is_flag(parameters[n])]
    named = dict.fromkeys([*old, *typed, *spelled])
    every = sorted({*named, *hinted}, key=[*parameters].index)  # one's own before those of a base
    if len(every) == len(named) == 1 and not _is_mapping(parameters[every[0]]):
        return tuple(every), True
    return tuple(every), not every


def is_cache_type(annotation: Any) -> bool:
    """Whether an annotation names the library's `Cache` or a kind of it, alone or among others."""
    if isinstance(annotation, str):
        return bool(re.search(r"\b\w*Cache\b", annotation))
    parts = getattr(annotation, "__args__", None) or (annotation,)
    kinds = [part for part in parts if isinstance(part, type)]
    return any(issubclass(kind, transformers.Cache) for kind in kinds)


def _is_mapping(annotation: Any) -> bool:
    return "dict" in str(annotation)


def _is_flag(annotation: Any) -> bool:
    return annotation is bool or bool(re.search(r"\bbool\b", str(annotation)))


def _parameters(forward: Callable[..., Any]) -> dict[str, Any]:
    """The parameters of a function, or of the one that it wraps, with their annotations."""
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(forward).parameters.values()
    return {p.name: p.annotation for p in parameters if p.kind not in several and p.name != "self"}


def takes_more(forward: Callable[..., Any]) -> bool:
    """Whether a function takes arguments that it does not name."""
    parameters = inspect.signature(forward).parameters.values()
    return any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters)


def _renames(forward: Callable[..., Any]) -> Iterator[tuple[str, str]]:
    """(new, old) names of arguments that the library's decorators still take by the old name."""
    function: Any = inspect.unwrap(forward, stop=_renames_one)
    while _renames_one(function):
        held = inspect.getclosurevars(function).nonlocals
        yield str(held["new_name"]), str(held["old_name"])
        function = inspect.unwrap(function.__wrapped__, stop=_renames_one)


def _renames_one(function: Any) -> bool:
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    free = () if code is None else code.co_freevars
    if not {"new_name", "old_name"} <= set(free) or not hasattr(function, "__wrapped__"):
        return False
    return isinstance(inspect.getclosurevars(function).nonlocals.get("new_name"), str)


def ids_argument(function: Callable[..., Any]) -> str | None:
    """The name of a function's parameter for the ids: ``input_ids``, or its first one.

    None where it has to be given by its place.
    """
    usual = SPELLINGS[Role.IDS][0]
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)
    parameters = [p for p in inspect.signature(function).parameters.values() if p.name != "self"]
    if any(each.name == usual for each in parameters):
        return usual
    if not parameters or parameters[0].kind in by_place:
        return None
    keywords = parameters[0].kind is inspect.Parameter.VAR_KEYWORD
    return usual if keywords else parameters[0].name


# -- arguments and outputs that others read -------------------------------------------------------


def spellings(role: Role) -> tuple[str, ...]:
    """All names of a role that transformers uses, also those of a decoder with an encoder."""
    own = SPELLINGS[role]
    return (*own, *(f"{DECODER}{name}" for name in own)) if role in OF_DECODER else own


def name_in(arguments: Mapping[str, Any], role: Role) -> str | None:
    """The name by which ``arguments`` contain a role's value that is not None."""
    return next((n for n in spellings(role) if arguments.get(n) is not None), None)


def value(arguments: Mapping[str, Any], role: Role) -> Any:
    """A role's value among ``arguments``, or None."""
    name = name_in(arguments, role)
    return None if name is None else arguments[name]


def returned_cache(output: Mapping[str, Any] | Any, name: str | None = None) -> Any:
    """The cache that a pass or `generate` returned, or None.

    By ``name``, the argument's, else by the library's names, else the one value that is a `Cache`.
    """
    if not isinstance(output, Mapping):
        return None
    values = dict(output.items())  # an output of the library warns if it is asked by an old name
    for each in (name, *SPELLINGS[Role.CACHE]):
        if each is not None and values.get(each) is not None:
            return values[each]
    caches = [each for each in values.values() if isinstance(each, transformers.Cache)]
    return caches[0] if caches else None


def fed(arguments: Mapping[str, Any]) -> list[Tensor]:
    """The tensors among ``arguments`` with a row for each prompt and a column for each token."""
    roles = (Role.IDS, Role.EMBEDDINGS)
    return [
        arguments[n] for r in roles for n in spellings(r) if isinstance(arguments.get(n), Tensor)
    ]


def call(module: nn.Module, ids: Tensor, **values: Any) -> Any:
    """The output of a module's pass over ``ids``, with other arguments given by role."""
    bound = bind(module.forward, type(module).__mro__)
    return module(**bound.named({Role.IDS: ids, **values}))
