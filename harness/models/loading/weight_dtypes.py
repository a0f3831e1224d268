"""Rejects weights that transformers would load as something else, or by code of the hub."""

from __future__ import annotations

from collections.abc import Set
from importlib.util import find_spec
from typing import Any

from transformers import __version__
from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING as METHODS
from transformers.quantizers.auto import AutoHfQuantizer

from assay.harness.models.loading import scales
from assay.harness.models.loading.tensors import Stored
from assay.harness.models.machine.shortage import ENDS
from assay.harness.results.errors import BadInput, NotHere, brief, listed
from assay.harness.results.quiet import quiet

FROM_THE_HUB = frozenset(
    {"bitsandbytes", "eetq", "fbgemm_fp8", "fp8", "metal", "mxfp4", "mxfp8", "nvfp4"}
)
"""Methods for which the package kernels, if it is installed, fetches code from the hub."""

IN_EXTRA = ("compressed-tensors", "torchao")
"""Methods whose package comes with ``assay-lm[quantised]``."""


def check_quantisation(raw: dict[str, Any], spec: str, trust_remote_code: bool) -> None:
    """Raise `BadInput` for a quantization_config of config.json, ``raw``, that cannot be used.

    Transformers ignores a method that it does not know, and would then take packed integers for
    the weights themselves.  Of a known method, the package or a GPU may be missing.
    """
    quantisation = raw.get("quantization_config")
    if quantisation is None:
        return
    if not isinstance(quantisation, dict):
        raise BadInput(f"{spec}: config.json has a quantization_config that is not a JSON object")
    bits, method = scales.by_bits(quantisation), scales.method(quantisation)
    # METHODS lists bitsandbytes as two methods.
    if not isinstance(method, str):
        raise BadInput(f"{spec}: config.json has a quantization_config without a quant_method")
    if not bits and method not in {name.removesuffix("_4bit") for name in METHODS}:
        raise NotHere(
            f"{spec}: config.json names the quant_method {method!r}, which is "
            f"unknown to transformers {__version__}; another version may know it, or convert the "
            "weights to floats"
        )
    if not trust_remote_code and method in FROM_THE_HUB and find_spec("kernels"):
        raise BadInput(
            f"{spec}: its weights are quantised ({method}), for which the package kernels fetches "
            "code from the hub; uninstall kernels, or pass --trust-remote-code to let it"
        )
    try:
        with quiet():
            quantiser = AutoHfQuantizer.from_config(dict(quantisation), pre_quantized=True)
            quantiser.validate_environment(device_map=None)
    except ENDS as error:  # any error of the library or of a package
        extra = f"; install {method} (assay-lm[quantised])" if method in IN_EXTRA else ""
        extra *= find_spec(method.replace("-", "_")) is None
        raise BadInput(
            f"{spec}: its weights are quantised ({method}) and cannot be used "
            f"({brief(error)}){extra}"
        ) from error


def refuse_integers(raw: dict[str, Any], stored: Stored, parameters: Set[str], spec: str) -> None:
    """Raise `BadInput` for integer weights where nothing says how they were quantised.

    Transformers would cast them to floats.  Weights are recognised by their last name or as
    ``parameters`` of the model; integers elsewhere are buffers, such as the masks and positions
    that older versions saved.
    """
    if raw.get("quantization_config") is not None:
        return
    packed = {
        name: tensor.dtype
        for name, tensor in stored.tensors.items()
        if not tensor.is_float and (name.endswith(".weight") or name in parameters)
    }
    if packed:
        names = sorted(packed)
        dtype = packed[names[0]] or "an unknown dtype"
        raise BadInput(
            f"{spec}: its weights hold {dtype} in place of floats in {listed(names)}, and "
            "config.json has no quantization_config that says how to read them; convert them to "
            "floats"
        )
