"""Low-rank adapters (LoRA, by peft) on a model that keeps its own weights in the same memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from assay.harness.models.capabilities import Missing, require
from assay.harness.models.machine.shortage import ENDS, pass_on
from assay.harness.models.machine.weights import allocated
from assay.harness.models.reference.copying import copy_model
from assay.harness.models.reference.modified import way_of_copies
from assay.harness.models.reference.tolerances import bit_equal, one_bit_off
from assay.harness.models.subject import Subject, experts, lora
from assay.harness.models.subject.memo import memo
from assay.harness.results.quiet import quiet

RANK, ALPHA = 4, 8

STRENGTH = 0.5
"""Length of an adapter's change to a layer's weights, relative to these."""

HUNDREDTH = 0.01

LINEAR, EXPERTS = "linear layers", "experts"
"""Where adapters are."""

FIRST, SECOND = "default", "second"
"""Names of adapters; the first is the one that peft gives."""


@dataclass(eq=False)
class Adapted(Subject):
    """A model with adapters in it; ``whole`` is peft's wrapper, by which they are switched."""

    whole: Any = None


def fresh(subject: Subject, on: str = LINEAR) -> Adapted:
    """The subject with a new adapter, which changes nothing as its B is zero: in the subject's
    memory but for the adapter.

    ``on`` says where: all linear layers but the head, or the weights of experts.  Raises `Missing`
    where peft takes none of them.
    """
    import peft

    targets = experts_of(subject) if on == EXPERTS else layers_of(subject)
    model = in_same_memory(subject)
    with quiet(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        whole = peft.get_peft_model(model, _settings(targets, on))
    return _adapted(subject, whole)


def strong(subject: Subject, on: str = LINEAR) -> Adapted:
    """`fresh`, with a drawn B by which each layer's weights change by half of their length."""
    adapted = fresh(subject, on)
    move(adapted, STRENGTH)
    return adapted


def strong_once(subject: Subject, on: str = LINEAR) -> Adapted:
    """`strong`, once for each subject: not to be changed."""
    copies = _strong(subject)
    if on not in copies:
        copies[on] = strong(subject, on)
    return copies[on]


@memo
def _strong(subject: Subject) -> dict[str, Adapted]:
    return {}


def merged(subject: Subject, on: str = LINEAR) -> Subject:
    """The model of `strong_once`, its adapter added to its own weights; once for each subject."""
    copies = _merged(subject)
    if on not in copies:
        whole = copy_model(strong_once(subject, on).whole)
        with quiet():
            model: Any = whole.merge_and_unload()
        allocated(model)
        copies[on] = _like(subject, f"{subject.name}, merged", model)
    return copies[on]


@memo
def _merged(subject: Subject) -> dict[str, Subject]:
    return {}


def loaded(subject: Subject, folder: str, by: str) -> Adapted:
    """The subject with the adapter in ``folder``, loaded by "peft" or by "transformers"."""
    model: Any = in_same_memory(subject)
    with quiet():
        if by == "peft":
            wrapper = type(strong_once(subject).whole)
            return _adapted(subject, wrapper.from_pretrained(model, folder))
        model.load_adapter(folder, adapter_name=FIRST)
    return _like(subject, f"{subject.name}, with an adapter", model, Adapted)


@contextmanager
def saved(adapted: Adapted) -> Iterator[str]:
    """A folder with the adapter, within a block."""
    with tempfile.TemporaryDirectory() as folder:
        with quiet():
            adapted.whole.save_pretrained(folder, save_embedding_layers=False)
        yield folder


def add_another(adapted: Adapted) -> None:
    """Add a second adapter, on the same layers and as strong as the first, which stays active."""
    config = adapted.whole.peft_config[FIRST]
    with quiet(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        adapted.whole.add_adapter(SECOND, _settings(sorted(config.target_modules), LINEAR))
    move(adapted, STRENGTH, SECOND)
    adapted.model.requires_grad_(False)


def choose(adapted: Adapted, name: str) -> None:
    """Let the adapter of this name act alone."""
    adapted.whole.set_adapter(name)
    adapted.model.requires_grad_(False)  # peft would train it


def delete_first(adapted: Adapted) -> None:
    """Delete the first of two adapters; the second acts."""
    choose(adapted, SECOND)
    adapted.whole.delete_adapter(FIRST)


@contextmanager
def disabled(adapted: Adapted) -> Iterator[None]:
    """Within a block no adapter acts."""
    with adapted.whole.disable_adapter():
        yield
    adapted.model.requires_grad_(False)


def move(adapted: Adapted, by: float, name: str = FIRST) -> None:
    """Add to each B of an adapter drawn numbers, which change a layer's weights by the share
    ``by`` of their length.
    """
    draws = torch.Generator().manual_seed(len(name))
    with torch.no_grad():
        for layer in layers(adapted.model):
            if name not in layer.lora_B:
                continue
            a, b = layer.lora_A[name].weight, layer.lora_B[name].weight
            length = float(_weight(layer).double().norm())
            # A drawn B is about as long as the product of A and itself, divided by these.
            unit = length * a.shape[0] ** 0.5 / layer.scaling[name] / float(a.norm())
            drawn = torch.randn(b.shape, generator=draws) / b.numel() ** 0.5
            b += (by * unit * drawn).to(b)


def weights(adapted: Subject) -> dict[str, Tensor]:
    """The adapters' own weights by name."""
    named = adapted.model.named_parameters()
    return {name: weight for name, weight in named if ".lora_" in name}


def share_lost(adapted: Adapted, others: dict[str, Tensor]) -> float:
    """The largest share of any of the adapter's weights that ``others`` do not have, 0 to 1.

    They may be rounded to the model's own dtype, in which transformers keeps adapters.
    """
    ours = weights(adapted)
    if ours.keys() != others.keys():
        return 1.0
    shares = [0.0]
    for name, own in ours.items():
        loaded = others[name]
        if loaded.dtype not in (own.dtype, adapted.dtype):
            return 1.0
        shares.append(bit_equal(own.to(loaded), loaded))
    return max(shares)


def one_off(ours: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same with one element moved by one unit in the last place."""
    name = min(ours)
    return ours | {name: one_bit_off(ours[name])}


def layers(model: nn.Module) -> list[Any]:
    """The layers that have adapters."""
    from peft.tuners.lora import LoraLayer

    return [module for module in model.modules() if isinstance(module, LoraLayer)]


def in_same_memory(subject: Subject) -> nn.Module:
    """A copy of the model whose parameters and buffers are the subject's own."""
    tensors = [*subject.model.parameters(), *subject.model.buffers()]
    return copy_model(subject.model, {id(tensor): tensor for tensor in tensors})


@memo
def layers_of(subject: Subject) -> list[str]:
    """The names of the linear layers that peft gives adapters.

    Raises `Missing` where there is none.
    """
    require(subject, "adapters")
    names = lora.linear_layers(subject.model)
    if targets := _taken(subject, names, LINEAR):
        return targets
    ends = sorted({name.rpartition(".")[2] for name in names})  # peft refuses some by their ends
    good = [e for e in ends if _taken(subject, [n for n in names if _ends(n, e)], LINEAR)]
    if not (targets := [name for name in names if any(_ends(name, end) for end in good)]):
        raise Missing("adapters: peft takes no linear layer of the model")
    return targets


def _ends(name: str, end: str) -> bool:
    return name.rpartition(".")[2] == end


@memo
def experts_of(subject: Subject) -> list[str]:
    """The names of the weights of experts that peft gives adapters; raises `Missing` likewise."""
    require(subject, "adapters")
    parts = {id(module) for module in experts.modules(subject)}
    names = [
        f"{prefix}.{name}"
        for prefix, module in subject.model.named_modules()
        for name, weight in module.named_parameters(recurse=False)
        if id(module) in parts and weight.ndim == 3  # experts, rows, columns
    ]
    if not names:
        raise Missing("experts: no layer looks up by name how to compute its experts")
    if not (targets := _taken(subject, names, EXPERTS)):
        raise Missing("adapters: peft takes no weights of experts")
    return targets


def _taken(subject: Subject, targets: list[str], on: str) -> list[str]:
    """``targets`` where peft gives adapters to exactly these; else none."""
    import peft

    model: Any = in_same_memory(subject)
    try:
        with quiet(), torch.random.fork_rng(devices=[]):
            whole = peft.get_peft_model(model, _settings(targets, on))
    except ENDS as error:
        pass_on(error)
        return []
    return targets if layers(whole) else []


def _settings(targets: list[str], on: str) -> Any:
    import peft

    which: dict[str, Any] = {"target_modules": targets}
    if on == EXPERTS:
        which = {"target_modules": [], "target_parameters": targets}
    return peft.LoraConfig(r=RANK, lora_alpha=ALPHA, inference_mode=True, **which)


def _adapted(subject: Subject, whole: Any) -> Adapted:
    name = f"{subject.name}, with an adapter"
    return _like(subject, name, whole.get_base_model(), Adapted, whole=whole)


def _like(subject: Subject, name: str, model: Any, kind: Any = Subject, **more: Any) -> Any:
    model.eval().requires_grad_(False)
    return kind(
        *(name, model, subject.tokenizer),
        settings=replace(subject.settings, float64=way_of_copies(subject)),
        provenance=subject.provenance,
        **more,
    )


def _weight(layer: Any) -> Tensor:
    """The weight that a layer's adapter changes."""
    if hasattr(layer, "get_param"):
        weight: Tensor = layer.get_param()
    else:
        weight = layer.get_base_layer().weight
    return weight
