"""How a model's configuration scales its rotary positions for long prompts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from assay.harness.results.errors import Missing

BY_LENGTH = ("dynamic", "longrope")
"""Types of scaling whose frequencies depend on the length of a pass, past a certain one."""


def whole(config: Any) -> Any:
    """The parameters of one rotation, or those by kind of layer; None where there are none."""
    return getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None)


def parameters(config: Any) -> Iterator[dict[str, Any]]:
    """The parameters of each rotation: one, or one for each kind of layer."""
    every = whole(config)
    if not isinstance(every, dict):
        return
    parts = [part for part in every.values() if isinstance(part, dict)]
    yield from parts or [every]


def kind(rotation: dict[str, Any]) -> str:
    """The type of scaling that a rotation's ``parameters`` name."""
    return str(rotation.get("rope_type") or rotation.get("type") or "default")


def longest(config: Any) -> int | None:
    """The longest prompt for which positions are scaled; None where that is not said.

    Dynamic scaling takes ``max_position_embeddings`` for the length of training: "this factor
    effectively stretches the context window" (docstring of transformers'
    ``_compute_dynamic_ntk_parameters``).
    """
    factors = [r.get("factor") or 1.0 for r in parameters(config) if kind(r) == "dynamic"]
    most = getattr(config, "max_position_embeddings", None)
    return int(most * min(factors, default=1.0)) if most else None


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


def required_switch(config: Any) -> int:
    """`switch`; raises `Missing` where there is none."""
    if (length := switch(config)) is None:
        raise Missing("switched-rotation: no frequency depends on the length of a pass")
    return length
