"""Devices, dtypes, memory and attention that are asked for are there, or refused in one line."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
import torch

from assay.harness.models.loading.loading import (
    adopt,
    check_pair,
    inspect_checkpoint,
    load,
    parse_device,
)
from assay.harness.results.errors import BadInput
from assay.harness.tests.support.folders import logits, tiny, vast
from assay.harness.tests.support.loading import CPU, PLAIN, refused


def test_the_cpu_is_there() -> None:
    assert parse_device("cpu") == CPU
    assert parse_device("cpu:3") == CPU


def test_a_dtype_that_the_device_lacks_is_refused(saved: dict[str, Path]) -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        check_pair(CPU, dtype)
    lacking = torch.uint16  # has no product of matrices on a CPU
    with pytest.raises(BadInput, match=r"cpu cannot compute in torch\.uint16"):
        check_pair(CPU, lacking)
    with pytest.raises(BadInput, match="cpu cannot compute"):
        load(str(saved["gpt2"]), dtype=lacking, device=CPU)


def test_too_little_memory_is_seen_before_loading(folder: Path) -> None:
    vast(folder)
    message = refused(folder)
    assert "too little memory" in message
    assert "need 1099.5 GB and cpu has" in message
    assert "need 2199.0 GB" in refused(folder, dtype=torch.float64)


def test_memory_is_measured_against_the_weights(
    saved: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = inspect_checkpoint(str(saved["gpt2"])).bytes_at(torch.float32)
    assert exact == sum(4 * weight.numel() for weight in tiny("gpt2").parameters())
    memory = psutil.virtual_memory()
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory._replace(available=exact))
    assert load(str(saved["gpt2"]), **PLAIN).model is not None
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory._replace(available=exact - 1))
    assert "too little memory" in refused(saved["gpt2"])


@pytest.mark.parametrize(
    ("kind", "attention"),
    [
        ("gpt2", "of_the_future"),
        ("gpt2", "flex_attention"),
        ("gpt2", "owner/kernel"),
        ("gpt2", "flash_attention_2"),
    ],
)
def test_an_attention_that_the_model_lacks_is_refused(
    saved: dict[str, Path], kind: str, attention: str
) -> None:
    message = refused(saved[kind], attention=attention)
    assert repr(attention) in message
    with pytest.raises(BadInput, match=attention):
        adopt("made", tiny(kind), None, attention=attention, **PLAIN)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_an_attention_that_the_model_has_is_used(saved: dict[str, Path], attention: str) -> None:
    model = load(str(saved["gpt2"]), attention=attention, **PLAIN).model
    assert model.config._attn_implementation == attention
    assert torch.allclose(logits(model), logits(tiny("gpt2")), atol=1e-6)
