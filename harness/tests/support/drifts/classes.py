"""Drifts of classes, methods, defaults and configurations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import PreTrainedModel

from assay.harness.models.subject.roles import SPELLINGS, Role, bind
from assay.harness.tests.support.drifts.registry import (
    Inapplicable,
    drift,
    replace_forward,
    subclass,
)


@drift("class-renamed", "the model's class has another name")
def _class_renamed(model: PreTrainedModel) -> None:
    kind = type(model)
    model.__class__ = type("NextGeneration", (kind,), {"__module__": kind.__module__})


@drift("class-moved", "the model's class is in another module")
def _class_moved(model: PreTrainedModel) -> None:
    kind = type(model)
    model.__class__ = type(kind.__name__, (kind,), {"__module__": "transformers.next.modeling"})


@drift("type-renamed", "the configuration's model_type is another")
def _type_renamed(model: PreTrainedModel) -> None:
    config: Any = model.config
    config.model_type = "next"


def _without(name: str) -> Callable[[PreTrainedModel], None]:
    def change(model: PreTrainedModel) -> None:
        if not callable(getattr(model, name, None)):
            raise Inapplicable(f"the model has no {name}")

        def gone(self: Any) -> Any:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

        subclass(model, **{name: property(gone)})

    return change


for _name in (
    "generate",
    "prepare_inputs_for_generation",
    "get_input_embeddings",
    "get_output_embeddings",
    "save_pretrained",
    "set_attn_implementation",
    "gradient_checkpointing_enable",
    "can_generate",
):
    drift(f"{_name}-gone", f"the model has no method {_name}")(_without(_name))


@drift("head-not-given", "get_output_embeddings returns None")
def _no_head(model: PreTrainedModel) -> None:
    subclass(model, get_output_embeddings=lambda self: None)


@drift("cannot-generate", "the class says that it does not generate")
def _cannot_generate(model: PreTrainedModel) -> None:
    if not model.can_generate():
        raise Inapplicable("the model does not generate")
    subclass(model, can_generate=classmethod(lambda cls: False))


@drift("checkpointing-not-supported", "the class says that it recomputes no activations")
def _no_checkpointing(model: PreTrainedModel) -> None:
    if not getattr(model, "supports_gradient_checkpointing", False):
        raise Inapplicable("the model's class does not recompute activations")
    subclass(model, supports_gradient_checkpointing=False)


@drift("no-cache-by-default", "no cache is kept unless one is asked for")
def _no_cache_by_default(model: PreTrainedModel) -> None:
    name = SPELLINGS[Role.KEEP][0]
    config = model.config.get_text_config(decoder=True)
    if not getattr(config, name, False):
        raise Inapplicable("no cache is kept by default")
    setattr(config, name, False)


@drift("no-cache-in-generation", "generation keeps no cache by default")
def _no_cache_in_generation(model: PreTrainedModel) -> None:
    settings = getattr(model, "generation_config", None)
    if settings is None:
        raise Inapplicable("the model does not generate")
    setattr(settings, SPELLINGS[Role.KEEP][0], False)


@drift("eager-by-default", "attention is eager by default")
def _eager(model: PreTrainedModel) -> None:
    config = model.config.get_text_config(decoder=True)
    if getattr(config, "_attn_implementation", None) != "sdpa":
        raise Inapplicable("attention is not by sdpa")
    model.set_attn_implementation("eager")


@drift("loads-in-bfloat16", "checkpoints are loaded in bfloat16 unless another dtype is asked for")
def _bfloat16(model: PreTrainedModel) -> None:
    usual = type(model).from_pretrained.__func__  # type: ignore[attr-defined]

    def from_pretrained(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if not {"dtype", "torch_dtype"} & kwargs.keys():
            kwargs["dtype"] = torch.bfloat16
        return usual(cls, *args, **kwargs)

    subclass(model, from_pretrained=classmethod(from_pretrained))


@drift("pads-on-the-other-side", "masks of padding are read from the other side")
def _other_side(model: PreTrainedModel) -> None:
    bound = bind(model.forward, type(model).__mro__)
    if Role.MASK not in bound:
        raise Inapplicable("forward takes no mask")
    name = bound[Role.MASK]

    def call(usual: Callable[..., Any], named: dict[str, Any]) -> Any:
        mask = named.get(name)
        if isinstance(mask, torch.Tensor) and mask.ndim == 2:
            named[name] = mask.flip(1)
        return usual(**named)

    replace_forward(model, call)


@drift("layers-renamed", "the configuration has its number of blocks by another name")
def _layers_renamed(model: PreTrainedModel) -> None:
    _rename_field(model, "num_hidden_layers", "depth")


@drift("width-renamed", "the configuration has its hidden size by another name")
def _width_renamed(model: PreTrainedModel) -> None:
    _rename_field(model, "hidden_size", "width")


def _rename_field(model: PreTrainedModel, name: str, new: str) -> None:
    config = model.config.get_text_config(decoder=True)
    if not hasattr(config, name):
        raise Inapplicable(f"the configuration has no {name}")
    kind, own = type(config), config.attribute_map.get(name, name)
    value = getattr(config, own)

    def get(self: Any, attribute: str) -> Any:
        if attribute in (name, own):
            raise AttributeError(f"{kind.__name__!r} object has no attribute {attribute!r}")
        return kind.__getattribute__(self, attribute)

    setattr(config, new, value)
    config.__class__ = type(kind.__name__, (kind,), {"__getattribute__": get})


@drift("field-dropped-on-saving", "the configuration is saved without the size of its MLP")
def _dropped(model: PreTrainedModel) -> None:
    kind = type(model.config)
    fields = ("intermediate_size", "n_inner", "d_ff", "state_size")
    if not any(getattr(model.config, name, None) for name in fields):
        raise Inapplicable("the configuration has no such field")

    def to_dict(self: Any) -> dict[str, Any]:
        return {n: v for n, v in kind.to_dict(self).items() if n not in fields}

    def to_diff_dict(self: Any) -> dict[str, Any]:
        return {n: v for n, v in kind.to_diff_dict(self).items() if n not in fields}

    members = {"to_dict": to_dict, "to_diff_dict": to_diff_dict, "__module__": kind.__module__}
    model.config.__class__ = type(kind.__name__, (kind,), members)
