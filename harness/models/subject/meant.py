"""Whether a model is meant to be causal: by its class and configuration, not by its outputs.

Claim C1 tests what a model does.  This module decides what it is meant to do, in this order:

1. the user's option, ``--attends causal|both``;
2. an encoder-decoder's decoder, the examined part, is causal;
3. a field of the configuration that says so by itself (`FIELDS`);
4. the class and its model type.  A type whose encoder can be a decoder (it has a masked language
   model, or its body is named an encoder) attends both ways unless the configuration has
   ``is_decoder``; any other type with a model that generates is causal, with a head or without;
5. for classes that transformers does not know, the task in their ``auto_map``, the class's own
   name, and whether it generates.

If none of these decides, a model is neither, and claims about either do not apply.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transformers.models.auto import modeling_auto

from assay.harness.models.subject import compat
from assay.harness.models.subject.memo import memo
from assay.harness.results.errors import Missing

if TYPE_CHECKING:
    from assay.harness.models.subject import Subject

CAUSAL, BOTH = "causal", "both"
WAYS = (CAUSAL, BOTH)
"""The values of ``--attends``."""

FIELDS: dict[str, dict[bool | str, str]] = {
    "is_causal": {False: BOTH},  # transformers.masking_utils.create_causal_mask, every type
    "use_bidirectional_attention": {True: BOTH, "all": BOTH},  # gemma; "vision": images only
    "causal": {False: BOTH, True: CAUSAL},  # xlm, flaubert
    "attn_type": {"bi": BOTH, "uni": CAUSAL},  # xlnet
    "bidirectional": {True: BOTH},  # embedders with code of their own
    "bidirectional_attention": {True: BOTH},
}
"""Fields of a text model's configuration that decide by themselves, and what their values mean."""

PREFIXED = {"paligemma"}
"""Types whose field is about a prefix that ``token_type_ids`` mark, which prompts here lack."""

GENERATING = (
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
    "MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES",
)
"""Mappings of transformers from model types to classes that generate token by token."""

ENCODER = re.compile(r"Encoder(Model)?$")
NAMES = (
    (re.compile(r"[Bb]idirec"), BOTH),
    (re.compile(r"ForMaskedLM$"), BOTH),
    (ENCODER, BOTH),
    (re.compile(r"(ForCausalLM|LMHeadModel|ForConditionalGeneration)$"), CAUSAL),
)
"""What the names of classes that transformers does not know mean."""


TASKS = {"AutoModelForCausalLM": CAUSAL, "AutoModelForMaskedLM": BOTH}
"""Auto classes that load a model with code of its own, and what they mean."""


@dataclass(frozen=True)
class Meant:
    """``ways``: `CAUSAL`, `BOTH`, or None where nothing decides; ``why`` in one line."""

    ways: str | None
    why: str


@memo
def direction(subject: Subject) -> Meant:
    """How ``subject`` is meant to attend."""
    if (attends := subject.settings.attends) is not None:
        return Meant(attends, f"--attends {attends} says so")
    if subject.is_encoder_decoder:
        return Meant(CAUSAL, "the decoder of an encoder-decoder writes token after token")
    model = subject.model
    return (
        _by_field(subject)
        or _by_class(subject)
        or _by_auto_map(model)
        or _by_name(model)
        or _by_generation(model)
        or Meant(
            None,
            f"nothing says whether {_class_name(model)} is meant to be causal; "
            "say --attends=causal or --attends=both",
        )
    )


def is_causal(subject: Subject) -> bool:
    """Whether ``subject`` is meant to be causal; raises `Missing` where nothing decides."""
    if (meant := direction(subject)).ways is None:
        raise Missing(meant.why)
    return meant.ways == CAUSAL


def _by_field(subject: Subject) -> Meant | None:
    if subject.model.config.model_type in PREFIXED:
        return None
    for field, says in FIELDS.items():
        value = getattr(subject.config, field, None)
        if isinstance(value, bool | str) and value in says:
            return Meant(says[value], f"the configuration says {field} = {value!r}")
    return None


def _by_class(subject: Subject) -> Meant | None:
    """By the mappings of transformers, for a model type that is in them."""
    config, name = subject.config, type(subject.model).__name__
    types = dict.fromkeys((subject.model.config.model_type, config.model_type))
    if any(_is_encoder(each) for each in types) or ENCODER.search(name):
        if getattr(config, "is_decoder", False):
            return Meant(CAUSAL, "the configuration says is_decoder = True")
        return Meant(BOTH, f"{name} is an encoder, and is_decoder is not set")
    if any(each in _mapping(mapping) for each in types for mapping in GENERATING):
        return Meant(CAUSAL, f"{name} is of the type {config.model_type!r}, which generates text")
    return None


def _is_encoder(model_type: str) -> bool:
    """Whether the type is an encoder's, which can also be a decoder.

    Bart and its relatives are in the masked mapping as encoder-decoders; decoders of theirs saved
    alone set ``is_decoder`` themselves.
    """
    bodies = _classes(_mapping("MODEL_MAPPING_NAMES").get(model_type, ()))
    masked = model_type in _mapping("MODEL_FOR_MASKED_LM_MAPPING_NAMES")
    return masked or any(map(ENCODER.search, bodies))


def _by_auto_map(model: Any) -> Meant | None:
    """By the only task in the ``auto_map`` of a checkpoint with code of its own."""
    tasks = getattr(model.config, "auto_map", None) or {}
    ways_of_tasks = {ways for task, ways in TASKS.items() if task in tasks}
    if len(ways_of_tasks) != 1:
        return None
    named = next(task for task in TASKS if task in tasks)
    return Meant(ways_of_tasks.pop(), f"the configuration's auto_map names {named}")


def _class_name(model: Any) -> str:
    """The name of the model's class, or of the function or class that is wrapped."""
    wrapped: str = getattr(model.config, "inner", "")
    return wrapped.rpartition(".")[2] or type(model).__name__


def _by_name(model: Any) -> Meant | None:
    name = _class_name(model)
    for pattern, ways in NAMES:
        if pattern.search(name):
            return Meant(ways, f"the class is named {name}")
    return None


def _by_generation(model: Any) -> Meant | None:
    if not compat.can_generate(model):
        return None
    return Meant(CAUSAL, f"{type(model).__name__} generates text, token after token")


def _mapping(name: str) -> Any:
    """A mapping of the library; empty in versions without it."""
    return getattr(modeling_auto, name, {})


def _classes(named: Any) -> Iterable[str]:
    return (named,) if isinstance(named, str) else named
