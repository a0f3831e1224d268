"""A model's digest: the same after saving and loading, and another with any weight or setting."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from assay.harness.models.loading import digests
from assay.harness.models.loading.loading import load
from assay.harness.tests.support.folders import edit_weights, tiny
from assay.harness.tests.support.loading import KINDS, PLAIN, set_number


def test_the_digest_survives_saving_and_loading(saved: dict[str, Path], tmp_path: Path) -> None:
    for kind in KINDS:
        loaded = load(str(saved[kind]), **PLAIN)
        loaded.model.save_pretrained(tmp_path / kind)
        again = load(str(tmp_path / kind), **PLAIN)
        assert digests.digest(tiny(kind)) == loaded.digest == again.digest


def test_the_digest_changes_with_a_single_weight(folder: Path) -> None:
    before = load(str(folder), **PLAIN).digest
    edit_weights(folder, set_number(0.5))
    assert load(str(folder), **PLAIN).digest != before


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_the_digest_is_of_the_weights_as_stored(
    saved: dict[str, Path], dtype: torch.dtype
) -> None:
    loaded = load(str(saved["llama"]), **PLAIN | {"dtype": dtype})
    assert loaded.model.dtype == dtype
    assert loaded.digest == load(str(saved["llama"]), **PLAIN).digest
    lossless = dtype == torch.float64
    assert (digests.digest(loaded.model) == loaded.digest) is lossless
