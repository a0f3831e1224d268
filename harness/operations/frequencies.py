"""Rotary frequencies computed from a configuration by their formulas, and given to a model.

Formulas: "Extending Context Window of Large Language Models via Positional Interpolation"
(arXiv 2306.15595) for linear scaling; bloc97 and emozilla for dynamic scaling, as in "YaRN"
(arXiv 2309.00071), which also has yarn's; "LongRoPE" (arXiv 2402.13753); the code of Llama 3.1;
and, for proportional rotation, that of Gemma.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from assay.harness.models.subject import Subject, rotations
from assay.harness.results.errors import Missing

Rotation = tuple[Tensor, float]
"""Frequencies [pairs] in radians a position, and a factor of the cosines and sines."""


@contextmanager
def by_formula(subject: Subject, length: int, scaled: bool = True) -> Iterator[None]:
    """Within the block ``subject`` rotates as its configuration says for ``length`` tokens.

    Not ``scaled``, it rotates as if the configuration named no scaling.  Passes of other lengths
    rotate alike.  Raises `Missing` where no module of the model keeps such frequencies.
    """
    modules = _modules(subject)
    with ExitStack() as undo:
        for module, layer, rotation in modules:
            prefix = "" if layer is None else f"{layer}_"
            width = 2 * getattr(module, f"{prefix}inv_freq").numel()
            frequencies, factor = _formula(subject.config, rotation, width, length, scaled)
            device = getattr(module, f"{prefix}inv_freq").device
            undo.enter_context(_set(module, f"{prefix}inv_freq", frequencies.to(device)))
            undo.enter_context(_set(module, f"{prefix}attention_scaling", factor))
            kinds: Any = module.rope_type
            still = "default" if layer is None else {**kinds, layer: "default"}
            undo.enter_context(_set(module, "rope_type", still))
        for module in {each for each, _, _ in modules}:
            undo.callback(module.register_forward_hook(_forward_alone, with_kwargs=True).remove)
        yield


def _forward_alone(module: nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> Any:
    """The module's own output: other hooks may have changed the angles."""
    return module.forward(*args, **kwargs)


@contextmanager
def forgotten(subject: Subject, ids: Tensor) -> Iterator[None]:
    """After the block ``subject`` and its float64 reference read the first of ``ids`` [batch, n]:
    dynamic scaling keeps a long prompt's frequencies until it reads a short one.
    """
    try:
        yield
    finally:
        for each in filter(None, (subject, subject.reference)):
            each.rows(ids[:1, : subject.shortest])


def of_length(subject: Subject, length: int, scaled: bool = True) -> Rotation:
    """The rotation of a pass of ``length`` tokens; raises `Missing` like `by_formula`."""
    module, layer, rotation = _modules(subject)[0]
    width = 2 * getattr(module, "inv_freq" if layer is None else f"{layer}_inv_freq").numel()
    return _formula(subject.config, rotation, width, length, scaled)


def require(subject: Subject) -> None:
    """Raise `Missing` unless the model scales its rotation, and keeps the frequencies."""
    kinds = {rotations.kind(rotation) for _, _, rotation in _modules(subject)}
    if unknown := kinds - {"default", *_FORMULAS}:
        raise Missing(f"no formula is known for a rotation of type {', '.join(sorted(unknown))}")


def _modules(subject: Subject) -> list[tuple[nn.Module, str | None, dict[str, Any]]]:
    """Modules that keep frequencies of a scaled rotation, each with its kind of layers."""
    whole = rotations.whole(subject.config)
    modules: list[tuple[nn.Module, str | None, dict[str, Any]]] = []
    for module in subject.model.modules():
        kind = getattr(module, "rope_type", None)
        if isinstance(kind, str) and torch.is_tensor(getattr(module, "inv_freq", None)):
            if isinstance(whole, dict) and rotations.kind(whole) == kind != "default":
                modules.append((module, None, whole))
        elif isinstance(kind, dict) and isinstance(whole, dict):
            modules += [
                (module, layer, whole[layer])
                for layer, each in kind.items()
                if each != "default" and hasattr(module, f"{layer}_inv_freq")
            ]
    if not modules:
        raise Missing("no module keeps the frequencies of a scaled rotation")
    return modules


def _formula(
    config: Any, rotation: dict[str, Any], width: int, length: int, scaled: bool
) -> Rotation:
    base = rotation.get("rope_theta") or getattr(config, "rope_theta", None) or 10000.0
    # As the models do, in float32: the last digits of an angle matter at far positions.
    own = 1.0 / base ** (torch.arange(0, width, 2, dtype=torch.int64).float() / width)
    if not scaled:
        return own, 1.0
    return _FORMULAS[rotations.kind(rotation)](config, rotation, own, base, length)


def _linear(config: Any, rotation: dict[str, Any], own: Tensor, base: float, n: int) -> Rotation:
    return own / rotation["factor"], 1.0


def _dynamic(config: Any, rotation: dict[str, Any], own: Tensor, base: float, n: int) -> Rotation:
    made_for, factor, width = config.max_position_embeddings, rotation["factor"], 2 * len(own)
    stretch = factor * max(n, made_for) / made_for - (factor - 1)
    wider = base * stretch ** (width / (width - 2))
    return 1.0 / wider ** (torch.arange(0, width, 2, dtype=torch.int64).float() / width), 1.0


def _yarn(config: Any, rotation: dict[str, Any], own: Tensor, base: float, n: int) -> Rotation:
    made_for = _made_for(config, rotation)
    factor = rotation.get("factor") or config.max_position_embeddings / made_for

    def pair(turns: float) -> float:
        """The pair that turns so often over the original length."""
        return len(own) * math.log(made_for / (turns * 2 * math.pi)) / math.log(base)

    first, last = pair(rotation.get("beta_fast") or 32), pair(rotation.get("beta_slow") or 1)
    if rotation.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, 2 * len(own) - 1)
    share = (torch.arange(len(own)).float() - first) / max(last - first, 0.001)
    slow = share.clamp(0, 1)
    scale, all_of_it = rotation.get("mscale"), rotation.get("mscale_all_dim")
    warmth = rotation.get("attention_factor")
    if warmth is None and scale and all_of_it:
        warmth = _warmth(factor, scale) / _warmth(factor, all_of_it)
    return own / factor * slow + own * (1 - slow), _warmth(factor) if warmth is None else warmth


def _warmth(factor: float, scale: float = 1.0) -> float:
    return 0.1 * scale * math.log(factor) + 1.0 if factor > 1 else 1.0


def _longrope(config: Any, rotation: dict[str, Any], own: Tensor, base: float, n: int) -> Rotation:
    made_for = _made_for(config, rotation)
    factors = rotation["long_factor" if n > made_for else "short_factor"]
    longer = rotation.get("factor") or config.max_position_embeddings / made_for
    warmth = rotation.get("attention_factor")
    if warmth is None:
        warmth = math.sqrt(1 + math.log(longer) / math.log(made_for)) if longer > 1 else 1.0
    return own / torch.tensor(factors), warmth


def _llama3(config: Any, rotation: dict[str, Any], own: Tensor, base: float, n: int) -> Rotation:
    low, high = rotation["low_freq_factor"], rotation["high_freq_factor"]
    turns = _made_for(config, rotation) * own / (2 * math.pi)
    share = ((turns - low) / (high - low)).clamp(0, 1)
    return own / rotation["factor"] * (1 - share) + own * share, 1.0


def _proportional(
    config: Any, rotation: dict[str, Any], own: Tensor, base: float, n: int
) -> Rotation:
    rotated = int(rotation.get("partial_rotary_factor", 1.0) * len(own))
    return own * (torch.arange(len(own)) < rotated) / rotation.get("factor", 1.0), 1.0


def _made_for(config: Any, rotation: dict[str, Any]) -> int:
    own = getattr(config, "original_max_position_embeddings", None)
    return int(own or rotation["original_max_position_embeddings"])


_FORMULAS = {
    "linear": _linear,
    "dynamic": _dynamic,
    "yarn": _yarn,
    "longrope": _longrope,
    "llama3": _llama3,
    "proportional": _proportional,
}


@contextmanager
def _set(owner: Any, name: str, value: Any) -> Iterator[None]:
    """An attribute of ``owner`` is ``value`` within the block."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
