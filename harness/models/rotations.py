"""How a model's configuration scales its rotary positions for long prompts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

BY_LENGTH = ("dynamic", "longrope")
"""Types of scaling whose frequencies depend on the length of a pass, past a certain one."""


def parameters(config: Any) -> Iterator[dict[str, Any]]:
    """The parameters of each rotation: one, or one for each kind of layer."""
    whole = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None)
    if not isinstance(whole, dict):
        return
    parts = [part for part in whole.values() if isinstance(part, dict)]
    yield from parts or [whole]


def kind(rotation: dict[str, Any]) -> str:
    """The type of scaling that a rotation's ``parameters`` name."""
    return str(rotation.get("rope_type") or rotation.get("type") or "default")


def lengthened(config: Any) -> float:
    """How many times longer a prompt may be than ``max_position_embeddings``.

    Dynamic scaling takes that for the length of training: "this factor effectively stretches the
    context window" (docstring of transformers' ``_compute_dynamic_ntk_parameters``).
    """
    factors = [r.get("factor") or 1.0 for r in parameters(config) if kind(r) == "dynamic"]
    return min(factors, default=1.0)


def made_for(config: Any) -> list[int]:
    """The lengths up to which the rotations of ``config`` were made, ascending."""
    lengths = {
        config.max_position_embeddings
        if kind(each) == "dynamic"
        else each.get("original_max_position_embeddings")
        or getattr(config, "original_max_position_embeddings", None)
        for each in parameters(config)
        if kind(each) not in ("default", "linear", "proportional")
    }
    return sorted(length for length in lengths if isinstance(length, int))


def switch(config: Any) -> int | None:
    """The length past which frequencies depend on the length of a pass; None: there is none."""
    scaled = [each for each in parameters(config) if kind(each) in BY_LENGTH]
    return min(made_for(config), default=None) if scaled else None
