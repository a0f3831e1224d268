"""Checks weights that are not stored as floats, and how they are to be converted."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from transformers import __version__
from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING as METHODS
from transformers.quantizers.auto import AutoHfQuantizer

from assay.harness.models.loading.stored import FLOATS, Stored
from assay.harness.models.machine.shortage import ENDS
from assay.harness.results.errors import BadInput, NotHere, brief, listed
from assay.harness.results.quiet import quiet

PACKAGES = {
    "bitsandbytes": ("bitsandbytes", "accelerate"),
    "torchao": ("torchao",),
    "compressed-tensors": ("compressed-tensors",),
    "gptq": ("gptqmodel", "optimum"),
    "awq": ("gptqmodel",),
}
"""The packages that a method's weights need; transformers names those of other methods."""

FROM_THE_HUB = frozenset(
    {"bitsandbytes", "eetq", "fbgemm_fp8", "fp8", "metal", "mxfp4", "mxfp8", "nvfp4"}
)
"""Methods for which the package kernels, if it is installed, fetches code from the hub."""

EXTRA = "assay-lm[quantised]"

IN_EXTRA = ("compressed-tensors", "torchao")
"""The packages that come with `EXTRA`."""


def refuse_unknown_quantisation(raw: dict[str, Any], spec: str) -> None:
    """Raise `BadInput` for a quantization_config that transformers would ignore.

    It would then take the packed integers for the weights themselves.
    """
    quantisation = raw.get("quantization_config")
    if quantisation is None:
        return
    if not isinstance(quantisation, dict):
        raise BadInput(f"{spec}: config.json has a quantization_config that is not a JSON object")
    method = quantisation.get("quant_method")
    # METHODS lists bitsandbytes as two methods; its older files name none.
    bits = [bit for bit in ("4bit", "8bit") if quantisation.get(f"load_in_{bit}")]
    if not isinstance(method, str) and not bits:
        raise BadInput(f"{spec}: config.json has a quantization_config without a quant_method")
    supported = bits or any(name.removesuffix("_4bit") == method for name in METHODS)
    if not supported:
        raise NotHere(
            f"{spec}: config.json names the quant_method {method!r}, which is "
            f"unknown to transformers {__version__}; another version may know it, or convert the "
            "weights to floats"
        )


def refuse_unusable_quantisation(raw: dict[str, Any], spec: str) -> None:
    """Raise `BadInput` where quantised weights lack their package, or a GPU that they need."""
    quantisation = raw.get("quantization_config")
    if quantisation is None:
        return
    method = quantisation.get("quant_method", "bitsandbytes")
    for package in PACKAGES.get(method, ()):
        if find_spec(package.replace("-", "_")) is None:
            extra = f" ({EXTRA})" if package in IN_EXTRA else ""
            raise BadInput(
                f"{spec}: its weights are quantised ({method}); install {package}{extra}"
            )
    try:
        with quiet():
            quantiser = AutoHfQuantizer.from_config(dict(quantisation), pre_quantized=True)
            quantiser.validate_environment(device_map=None)
    except ENDS as error:  # whatever the library or a package raises
        raise BadInput(
            f"{spec}: its weights are quantised ({method}) and cannot be used ({brief(error)})"
        ) from error


def refuse_kernels_of_the_hub(raw: dict[str, Any], spec: str) -> None:
    """Raise `BadInput` where code of the hub would be fetched to compute with the weights."""
    method = (raw.get("quantization_config") or {}).get("quant_method", "bitsandbytes")
    if raw.get("quantization_config") and method in FROM_THE_HUB and find_spec("kernels"):
        raise BadInput(
            f"{spec}: its weights are quantised ({method}), for which the package kernels fetches "
            "code from the hub; uninstall kernels, or pass --trust-remote-code to let it"
        )


def refuse_integers(
    raw: dict[str, Any], stored: Stored, parameters: frozenset[str], spec: str
) -> None:
    """Raise `BadInput` for integer weights where nothing says how they were quantised.

    Weights are recognised by their last name or as ``parameters`` of the model; integers elsewhere
    are buffers, such as the masks and positions that older versions saved.
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
