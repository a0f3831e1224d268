"""Weights that do not fit their configuration are refused, and the tensor is named."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2LMHeadModel

from assay.fixtures import subjects
from assay.harness.models.loading.loading import load
from assay.harness.models.loading.runs import Options
from assay.harness.results.errors import BadInput
from assay.harness.tests.support.folders import edit_json, edit_weights, tiny
from assay.harness.tests.support.loading import FC, PLAIN, refused, same, set_number


def test_missing_weights_are_named(folder: Path) -> None:
    edit_weights(folder, lambda tensors: tensors.pop(FC))
    message = refused(folder)
    assert f"lack '{FC}'" in message
    assert "at random" in message


def test_weights_of_another_shape_are_named(folder: Path) -> None:
    edit_weights(folder, lambda tensors: tensors.update({FC: torch.zeros(16, 3)}))
    message = refused(folder)
    assert f"{FC} is of shape [16, 3]" in message
    assert "[16, 64]" in message


@pytest.mark.parametrize(
    ("kind", "beyond"),
    [
        ("gpt2", "transformer.h.2.ln_1.weight"),
        ("gpt2", "transformer.h.0.ln_1.scale"),
        ("llama", "model.layers.0.self_attn.q_proj.bias"),
    ],
)
def test_weights_that_the_configuration_leaves_out_are_refused(
    saved: dict[str, Path], tmp_path: Path, kind: str, beyond: str
) -> None:
    folder = shutil.copytree(saved[kind], tmp_path / kind)
    edit_weights(folder, lambda tensors: tensors.update({beyond: torch.ones(16)}))
    assert f"has no parameters for '{beyond}'" in refused(folder)


@pytest.mark.parametrize(("layers", "loads"), [(1, True), (0, False)])
def test_a_layer_for_drafts_is_no_layer_too_many(
    saved: dict[str, Path], tmp_path: Path, layers: int, loads: bool
) -> None:
    folder = shutil.copytree(saved["llama"], tmp_path / "llama")
    edit_json(folder / "config.json", num_nextn_predict_layers=layers)
    name = "model.layers.2.input_layernorm.weight"
    edit_weights(folder, lambda tensors: tensors.update({name: torch.ones(16)}))
    if loads:
        same(load(str(folder), **PLAIN).model, tiny("llama"))
    else:
        assert f"has no parameters for '{name}'" in refused(folder)


@pytest.mark.parametrize("spare", ["score.weight", "transformer.h.0.attn.bias", "v_head.bias"])
def test_spare_heads_and_old_buffers_do_no_harm(folder: Path, spare: str) -> None:
    edit_weights(folder, lambda tensors: tensors.update({spare: torch.ones(16)}))
    same(load(str(folder), **PLAIN).model, tiny("gpt2"))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_weights_that_are_not_finite_are_named(folder: Path, value: float) -> None:
    edit_weights(folder, set_number(value))
    assert f"1 of 1024 numbers in {FC} are NaN or infinite" in refused(folder)


def test_weights_beyond_the_range_of_the_dtype_are_named(folder: Path) -> None:
    edit_weights(folder, set_number(1e6))
    message = refused(folder, dtype=torch.float16)
    assert f"{FC} are NaN or infinite in torch.float16" in message
    assert load(str(folder), **PLAIN | {"dtype": torch.bfloat16}).model.dtype == torch.bfloat16


def test_a_causal_model_that_loses_a_row_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every law about rows would not apply, and the run would pass."""
    forward = GPT2LMHeadModel.forward

    def short(self: Any, *args: Any, **kwargs: Any) -> Any:
        output = forward(self, *args, **kwargs)
        output.logits = output.logits[:, :-1]
        return output

    subjects.load(str(folder), Options())
    monkeypatch.setattr(GPT2LMHeadModel, "forward", short)
    with pytest.raises(BadInput, match="gives no row for each of 4 tokens"):
        subjects.load(str(folder), Options())
