"""Low-rank adapters (LoRA, by peft) on a model that keeps its own weights in the same memory."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from assay.harness.models.capabilities import Missing, require
from assay.harness.models.machine.allocation import allocated
from assay.harness.models.machine.shortage import ENDS, pass_on
from assay.harness.models.reference.copying import copy_model
from assay.harness.models.reference.tolerances import bit_equal, one_bit_off
from assay.harness.models.subject import Subject, experts, lora
from assay.harness.models.subject.memo import memo
from assay.harness.results.quiet import quiet

RANK, ALPHA = 4, 8

STRENGTH = 0.5
"""Length of an adapter's change to a layer's weights, relative to these."""

HUNDREDTH = 0.01

LINEAR, EXPERTS, SCALES, DORA = "linear layers", "experts", "ranks and scales", "DoRA"
"""Where adapters are, or which: on linear layers with ranks and scales by layer, stabilised by
rank (arXiv 2312.03732), and a trained head; on linear layers with magnitudes (arXiv 2402.09353).
"""

FIRST, SECOND = "default", "second"
"""Names of adapters; the first is the one that peft gives."""

MAGNITUDE, SAVED = "lora_magnitude_vector", ".modules_to_save."
"""Parts of the names of weights: of DoRA's magnitudes, and of modules trained in full."""


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

    targets = {EXPERTS: experts_of, DORA: dora_layers_of}.get(on, layers_of)(subject)
    model: Any = in_same_memory(subject)
    with quiet(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        whole = peft.get_peft_model(model, _settings(targets, on, lora.head_name(model)))
    return _adapted(subject, whole)


def strong(subject: Subject, on: str = LINEAR) -> Adapted:
    """`fresh`, with a drawn B by which each layer's weights change by half of their length."""
    adapted = fresh(subject, on)
    move(adapted, STRENGTH)
    return adapted


def strong_once(subject: Subject, on: str = LINEAR) -> Adapted:
    """`strong`, until another is asked for: not to be changed."""
    copies = _strong(subject)
    if on not in copies:
        copies.clear()
        copies[on] = strong(subject, on)
    return copies[on]


@memo
def _strong(subject: Subject) -> dict[str, Adapted]:
    return {}


def merged(subject: Subject, on: str = LINEAR) -> Subject:
    """The model of `strong_once` with its adapter added to its own weights, until another is
    asked for.
    """
    copies = _merged(subject)
    if on not in copies:
        copies.clear()
        whole = copy_model(strong_once(subject, on).whole)
        with quiet():
            model: Any = whole.merge_and_unload()
        allocated(model)
        copies[on] = like(subject, "merged", model)
    return copies[on]


@memo
def _merged(subject: Subject) -> dict[str, Subject]:
    return {}


def loaded(subject: Subject, folder: str, by: str, base: Any = None, name: str = FIRST) -> Adapted:
    """The subject with the adapter in ``folder``, loaded by "peft" or by "transformers".

    It is loaded onto ``base``, which is a copy of the subject's model by default.
    """
    import peft

    model: Any = in_same_memory(subject) if base is None else base
    with quiet():
        if by == "peft":
            whole = peft.PeftModel.from_pretrained(model, folder, adapter_name=name)
            return _adapted(subject, whole)
        model.load_adapter(folder, adapter_name=name)
    return like(subject, "with an adapter", model, Adapted)


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


def move(adapted: Subject, by: float, name: str = FIRST) -> None:
    """Add to each B of an adapter drawn numbers, which change a layer's weights by the share
    ``by`` of their length; other weights of an adapter change by up to this share.
    """
    draws = torch.Generator().manual_seed(len(name))
    with torch.no_grad():
        for key, weight in weights(adapted).items():
            if MAGNITUDE in key or SAVED in key:
                weight *= 1 + by * (2 * torch.rand(weight.shape, generator=draws) - 1).to(weight)
        for layer in layers(adapted.model):
            if name not in layer.lora_B:
                continue
            a, b = layer.lora_A[name].weight, layer.lora_B[name].weight
            length = float(_weight(layer).double().norm())
            # A drawn B is about as long as the product of A and itself, divided by these.
            unit = length * a.shape[0] ** 0.5 / layer.scaling[name] / float(a.norm())
            drawn = torch.randn(b.shape, generator=draws) / b.numel() ** 0.5
            b += (by * unit * drawn).to(b)


def forget(adapted: Subject, name: str = FIRST) -> None:
    """Give each layer the scale of the adapter's other layers, and magnitudes that change nothing:
    what loading without the adapter's patterns, or without its magnitudes, leaves.
    """
    with torch.no_grad():
        for layer in layers(adapted.model):
            layer.scaling[name] = ALPHA / RANK
            if name in getattr(layer, MAGNITUDE, ()):
                layer.lora_magnitude_vector[name].update_layer(
                    base_layer=layer.get_base_layer(),
                    lora_A=layer.lora_A[name].weight,
                    lora_B=torch.zeros_like(layer.lora_B[name].weight),
                    scaling=layer.scaling[name],
                )
    adapted.model.requires_grad_(False)


def weights(adapted: Subject) -> dict[str, Tensor]:
    """The adapters' own weights by name."""
    named = adapted.model.named_parameters()
    return {name: weight for name, weight in named if ".lora_" in name or SAVED in name}


def share_lost(adapted: Subject, others: dict[str, Tensor]) -> float:
    """The largest share of any of the adapter's weights that ``others`` do not have, 0 to 1."""
    return max(shares_lost(adapted, others).values(), default=0.0)


def shares_lost(adapted: Subject, others: dict[str, Tensor]) -> dict[str, float]:
    """The share of each of the adapter's weights that ``others`` do not have, where there is any.

    They may be rounded to the model's own dtype, in which transformers keeps adapters.
    """
    ours = weights(adapted)
    shares = dict.fromkeys(sorted(ours.keys() ^ others.keys()), 1.0)
    for name in ours.keys() & others.keys():
        own, loaded = ours[name], others[name]
        known = loaded.dtype in (own.dtype, adapted.dtype) and own.shape == loaded.shape
        if share := bit_equal(own.to(loaded), loaded) if known else 1.0:
            shares[name] = share
    return shares


def one_off(ours: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same with one element moved by one unit in the last place."""
    name = min(ours)
    return ours | {name: one_bit_off(ours[name])}


def layers(model: nn.Module) -> list[Any]:
    """The layers that have adapters."""
    from peft.tuners.lora import LoraLayer

    return [module for module in model.modules() if isinstance(module, LoraLayer)]


def in_same_memory(subject: Subject, but: Iterable[Tensor] = ()) -> nn.Module:
    """A copy of the model whose parameters and buffers are the subject's, ``but`` for these."""
    tensors = [*subject.model.parameters(), *subject.model.buffers()]
    shared = {id(tensor): tensor for tensor in tensors}
    for tensor in but:
        del shared[id(tensor)]
    return copy_model(subject.model, shared)


@memo
def layers_of(subject: Subject) -> list[str]:
    """The names of the linear layers that peft gives adapters.

    Raises `Missing` where there is none.
    """
    require(subject, "adapters")
    return _accepted(subject, lora.linear_layers(subject.model), LINEAR)


@memo
def dora_layers_of(subject: Subject) -> list[str]:
    """Those of `layers_of` that peft gives magnitudes; raises `Missing` likewise."""
    return _accepted(subject, layers_of(subject), DORA)


def _accepted(subject: Subject, names: list[str], on: str) -> list[str]:
    if taken := _taken(subject, names, on):
        return taken
    ends = sorted({name.rpartition(".")[2] for name in names})  # peft refuses some by their ends
    good = [e for e in ends if _taken(subject, [n for n in names if _ends(n, e)], on)]
    if not (taken := [name for name in names if any(_ends(name, end) for end in good)]):
        raise Missing(f"adapters: peft takes no linear layer of the model ({on})")
    return taken


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


def _settings(targets: list[str], on: str, head: str = "") -> Any:
    """``head`` is the name of the output embedding, or empty."""
    import peft

    which: dict[str, Any] = {"target_modules": targets}
    if on == EXPERTS:
        which = {"target_modules": [], "target_parameters": targets}
    elif on == SCALES:
        names = [re.escape(target) for target in targets]
        which["rank_pattern"] = dict.fromkeys(names[::2], RANK // 2)
        which["alpha_pattern"] = dict.fromkeys(names[::3], 3 * ALPHA)
        which |= {"use_rslora": True, "modules_to_save": [head] if head else None}
    elif on == DORA:
        which["use_dora"] = True
    return peft.LoraConfig(r=RANK, lora_alpha=ALPHA, inference_mode=True, **which)


def _adapted(subject: Subject, whole: Any) -> Adapted:
    return like(subject, "with an adapter", whole.get_base_model(), Adapted, whole=whole)


def like(subject: Subject, what: str, model: Any, kind: Any = Subject, **more: Any) -> Any:
    """``model``, which is the subject's but for its adapter, as a subject named by ``what``."""
    model.eval().requires_grad_(False)
    return kind(
        *(f"{subject.name}, {what}", model, subject.tokenizer),
        settings=subject.settings,
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
