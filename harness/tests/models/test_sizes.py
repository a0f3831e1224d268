"""Configurations of models that are far larger than their weights, or have fewer parts."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, GPT2Model, PretrainedConfig

from assay.fixtures import families
from assay.harness.models.loading import loading, sizes
from assay.harness.models.loading.checkpoints import inspect_checkpoint
from assay.harness.tests.support.folders import edit_json, edit_weights, tiny
from assay.harness.tests.support.loading import refused

VAST = 10**12


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("bamba", {"num_hidden_layers": 10**4}),
        ("t5", {"num_decoder_layers": 10**4}),
        ("llama", {"vocab_size": 10**6}),
        ("llama", {"hidden_size": 10**6}),
        ("bert", {"type_vocab_size": 10**6}),
        ("llama", {"hidden_size": None, "intermediate_size": None, "vocab_size": None}),
    ],
    ids=str,
)
def test_a_larger_model_than_is_stored_is_rejected_before_it_is_built(
    saved: dict[str, Path], tmp_path: Path, kind: str, changes: dict[str, Any]
) -> None:
    folder = shutil.copytree(saved[kind], tmp_path / kind)
    edit_json(folder / "config.json", **changes)
    state = torch.get_rng_state()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "_from_pretrained", None)
        assert "the configuration describes a model far larger than its weights" in refused(folder)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("kind", "field", "value", "said"),
    [
        ("gpt2", "n_layer", VAST, "a model of 1000000000000 layers"),
        ("gpt2", "n_layer", 0, "has no parameters for 'transformer.h.0."),
        ("t5", "num_decoder_layers", -1, "has no parameters for 'decoder.block.0."),
        ("bert", "intermediate_size", 0, "is of shape [32] and config.json asks for [0]"),
        ("llama", "vocab_size", -16, "cannot be loaded"),
        ("llama", "num_hidden_layers", "2", "cannot be used"),
    ],
)
def test_sizes_that_no_model_has(
    saved: dict[str, Path], tmp_path: Path, kind: str, field: str, value: Any, said: str
) -> None:
    folder = shutil.copytree(saved[kind], tmp_path / kind)
    edit_json(folder / "config.json", **{field: value})
    assert said in refused(folder)


def passes(folder: Path) -> bool:
    """Whether the folder passes, and its sizes were in fact compared."""
    checkpoint = inspect_checkpoint(str(folder))
    raw, _ = PretrainedConfig.get_config_dict(folder)
    return len(sizes.check(raw, checkpoint.auto, checkpoint.stored, "it")) > 0


@pytest.mark.parametrize(
    "model_type",
    [
        "albert",  # all layers share one set of weights
        "deepseek_v3",  # experts, stored one by one
        "gpt_oss",  # experts, stored together
        "xglm",  # positions that are not stored
        "zamba",  # a block that layers share
    ],
)
def test_sound_models_of_many_kinds_pass(model_type: str, tmp_path: Path) -> None:
    families.tiny(model_type).save_pretrained(tmp_path)
    assert passes(tmp_path)


def test_a_vocabulary_of_each_layer_is_no_number_of_layers(tmp_path: Path) -> None:
    config = families.tiny("gemma3n_text").model.config.to_dict()
    sizes_of_each = {"vocab_size_per_layer_input": 262_144, "hidden_size_per_layer_input": 2}
    config = CONFIG_MAPPING["gemma3n_text"].from_dict(config | sizes_of_each)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    assert passes(tmp_path)


def test_a_body_without_its_head_passes(tmp_path: Path) -> None:
    GPT2Model(tiny("gpt2").config).save_pretrained(tmp_path)
    edit_json(tmp_path / "config.json", architectures=["GPT2LMHeadModel"])
    assert passes(tmp_path)


def test_packed_weights_may_be_few(folder: Path) -> None:
    def pack(tensors: dict[str, Tensor]) -> None:
        """Store all matrices as one byte for eight numbers."""
        for name, tensor in tensors.items():
            if tensor.ndim == 2:
                tensors[name] = torch.zeros(tensor.numel() // 8, dtype=torch.uint8)

    edit_weights(folder, pack)
    edit_json(folder / "config.json", quantization_config={"quant_method": "fp8"})
    assert passes(folder)
