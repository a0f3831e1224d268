"""Weights that are stored as something else than floats, and who turns them into floats."""

from __future__ import annotations

from typing import Any

from transformers import __version__
from transformers.quantizers.auto import AutoHfQuantizer

from harness.errors import BadInput, NotHere, brief, listed
from harness.stored import FLOATS, Stored


def refuse_unknown_quantisation(raw: dict[str, Any], spec: str) -> None:
    """Raise `BadInput` for a quantization_config that transformers would pass over.

    It then takes the packed integers for the weights themselves.
    """
    said = raw.get("quantization_config")
    if said is None:
        return
    if not isinstance(said, dict):
        raise BadInput(f"{spec}: config.json has a quantization_config that is no JSON object")
    try:
        known = AutoHfQuantizer.supports_quant_method(said)
    except Exception as error:  # it names no method, or one that is no string
        raise BadInput(
            f"{spec}: config.json has no usable quant_method ({brief(error)})"
        ) from error
    if not known:
        raise NotHere(
            f"{spec}: config.json names the quant_method {said.get('quant_method')!r}, which is "
            f"unknown to transformers {__version__}; another version may know it, or convert the "
            "weights to floats"
        )


def refuse_integers(
    raw: dict[str, Any], stored: Stored, parameters: frozenset[str], spec: str
) -> None:
    """Raise `BadInput` for weights that are no floats where nothing says how they were quantised.

    Weights are known by their last name or as ``parameters`` of the model; integers elsewhere are
    buffers, such as the masks and positions that older versions saved.
    """
    if raw.get("quantization_config") is not None:
        return
    packed = {
        name: tensor.dtype
        for name, tensor in stored.tensors.items()
        if tensor.dtype not in FLOATS and (name.endswith(".weight") or name in parameters)
    }
    if packed:
        names = sorted(packed)
        raise BadInput(
            f"{spec}: its weights hold {packed[names[0]]} in place of floats in {listed(names)}, "
            "and config.json has no quantization_config that says how to read them; convert them "
            "to floats"
        )
