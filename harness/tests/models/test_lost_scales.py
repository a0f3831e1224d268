"""Quantised folders whose scales, or other parts of weights, are missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from assay.fixtures import subjects
from assay.harness.models.loading.runs import Options
from assay.harness.results.errors import BadInput
from assay.harness.tests.support import quantised
from assay.harness.tests.support.folders import edit_weights

PROJECTION = "model.layers.0.mlp.gate_proj"
EXPERTS = "model.layers.0.mlp.experts.down_proj"


def fp8(folder: Path) -> None:
    quantised.fp8(folder, torch.bfloat16)


def mxfp4(folder: Path) -> None:
    quantised.mxfp4(folder, torch.bfloat16)


def nf4(folder: Path) -> None:
    quantised.written("bitsandbytes, 4 bits", folder)


def int8(folder: Path) -> None:
    quantised.written("bitsandbytes, 8 bits", folder)


LOST: list[tuple[Callable[[Path], None], str]] = [
    (fp8, f"{PROJECTION}.weight_scale_inv"),
    (mxfp4, f"{EXPERTS}_scales"),
    (nf4, f"{PROJECTION}.weight.absmax"),
    (nf4, f"{PROJECTION}.weight.nested_absmax"),
    (nf4, f"{PROJECTION}.weight.quant_map"),
    (nf4, f"{PROJECTION}.weight.quant_state.bitsandbytes__nf4"),
    (int8, f"{PROJECTION}.SCB"),
]


@pytest.mark.parametrize(("make", "name"), LOST)
def test_what_the_files_lack_is_named(
    make: Callable[[Path], None], name: str, tmp_path: Path
) -> None:
    make(tmp_path)
    subjects.check(str(tmp_path), Options())
    edit_weights(tmp_path, lambda weights: weights.pop(name))
    with pytest.raises(BadInput, match="without which they cannot be read") as rejected:
        subjects.check(str(tmp_path), Options())
    assert f"the files lack {name!r}, without" in str(rejected.value)
