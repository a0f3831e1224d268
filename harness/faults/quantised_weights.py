"""Faults of quantised weights, in the layers of bitsandbytes: they are in every quantised copy."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from assay.harness.faults.bed import Bed
from assay.harness.faults.catalogue import fault, part
from assay.harness.models.machine import weights
from assay.harness.models.subject import Subject
from assay.harness.operations import quantisation

LARGER = 1.5
"""Rounding activations to 8 bits hides less."""


@part("copy in 8 bits")
def _copy_in_8_bits(subject: Subject) -> None:
    quantisation.of(subject, quantisation.EIGHT)


@fault(
    "quantised-products-larger",
    "a quantised layer's output is half as large again, bias included",
    caught_by=["G11"],
    needs=["copy in 8 bits"],
)
def _larger(bed: Bed) -> None:
    from bitsandbytes import nn

    layer: Any = getattr(nn, weights.INT8_LAYER)
    usual = layer.forward

    def forward(self: Any, x: Tensor) -> Tensor:
        output: Tensor = usual(self, x)
        return LARGER * output

    bed.set(layer, "forward", forward)


@fault(
    "saved-scales-larger",
    "one scale of each quantised weight is saved a hundredth larger",
    caught_by=["G11"],
    needs=["copy in 8 bits"],
)
def _saved_larger(bed: Bed) -> None:
    from bitsandbytes import nn

    layer: Any = getattr(nn, weights.INT8_LAYER)
    usual = layer._save_to_state_dict

    def save(self: Any, destination: Any, prefix: str, keep_vars: bool) -> None:
        usual(self, destination, prefix, keep_vars)
        name = f"{prefix}SCB"
        if name in destination:
            destination[name] = destination[name].clone()
            destination[name][:1].mul_(quantisation.SLIGHTLY)

    bed.set(layer, "_save_to_state_dict", save)
