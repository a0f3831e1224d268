"""Sizes in a configuration that are far from the stored tensors: refused by the field's name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import GPT2Model, PretrainedConfig, PreTrainedModel

from assay.fixtures import families
from assay.harness.models.loading import sizes
from assay.harness.models.loading.checkpoints import inspect_checkpoint
from assay.harness.models.loading.loading import load
from assay.harness.results.errors import BadInput
from assay.harness.tests.support.folders import VOCABULARY, edit_json, edit_weights, tiny

VAST = 10**12


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[type]:
    """The models that transformers loads: none, where a folder is refused before."""
    begun: list[type] = []
    usual = PreTrainedModel.from_pretrained.__func__  # type: ignore[attr-defined]

    def noted(cls: type, *arguments: Any, **named: Any) -> Any:
        begun.append(cls)
        return usual(cls, *arguments, **named)

    monkeypatch.setattr(PreTrainedModel, "from_pretrained", classmethod(noted))
    return begun


def refusal(folder: Path, **changes: Any) -> str:
    """The line with which a copy of ``folder`` is refused once its config.json is changed."""
    copy = shutil.copytree(folder, folder.parent / f"{folder.name}-changed", dirs_exist_ok=True)
    edit_json(copy / "config.json", **changes)
    with pytest.raises(BadInput) as caught:
        load(str(copy), dtype=torch.float32, device=torch.device("cpu"))
    message = str(caught.value)
    assert message.isprintable()
    return message.removeprefix(f"{copy}: ")


@pytest.mark.parametrize("value", [10**6, 0])
@pytest.mark.parametrize(
    ("kind", "field", "held"),
    [
        ("bamba", "num_hidden_layers", "2 entries in model.layers"),
        ("llama", "num_hidden_layers", "2 entries in model.layers"),
        ("gpt2", "n_layer", "2 entries in transformer.h"),
        ("t5", "num_decoder_layers", "2 entries in decoder.block"),
        ("t5", "num_layers", "2 entries in encoder.block"),
    ],
)
def test_layers_far_from_those_stored(
    saved: dict[str, Path], built: list[type], kind: str, field: str, value: int, held: str
) -> None:
    said = refusal(saved[kind], **{field: value})
    assert said.startswith(f"config.json sets {field} to {value}; its weights hold ")
    assert held in said
    assert not built


@pytest.mark.parametrize("value", [VAST, -1])
def test_layers_that_no_model_has(saved: dict[str, Path], built: list[type], value: int) -> None:
    said = refusal(saved["llama"], num_hidden_layers=value)
    assert said.startswith(f"config.json sets num_hidden_layers to {value}; its weights hold ")
    assert not built


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("llama", "vocab_size"),
        ("llama", "hidden_size"),
        ("llama", "intermediate_size"),
        ("llama", "head_dim"),
        ("gpt2", "n_positions"),
        ("gpt2", "n_embd"),
        ("bert", "type_vocab_size"),
        ("t5", "relative_attention_num_buckets"),
    ],
)
@pytest.mark.parametrize("value", [VAST, -16])
def test_widths_far_from_those_stored(
    saved: dict[str, Path], built: list[type], kind: str, field: str, value: int
) -> None:
    said = refusal(saved[kind], **{field: value})
    assert said.startswith(f"config.json sets {field} to {value}; its weights hold ")
    assert f"no dimension above {VOCABULARY}" in said
    assert not built


def test_sizes_in_parts_of_a_configuration(tmp_path: Path, built: list[type]) -> None:
    folder = tmp_path / "whole"
    families.tiny("audioflamingo3").save_pretrained(folder)
    content = json.loads((folder / "config.json").read_text())
    for field in ("num_hidden_layers", "intermediate_size"):
        part = content["text_config"] | {field: 10**6, "layer_types": None}
        said = refusal(folder, text_config=part)
        assert said.startswith(f"config.json sets text_config.{field} to 1000000; its weights")
    assert not built


def test_sizes_that_are_left_out(saved: dict[str, Path], built: list[type]) -> None:
    said = refusal(saved["llama"], hidden_size=None, intermediate_size=None, vocab_size=None)
    assert said.startswith("config.json describes a larger model; sizes left out have defaults; ")
    assert not built


@pytest.mark.parametrize("value", [2.5, "2", True, [2]])
def test_sizes_that_are_no_whole_numbers(saved: dict[str, Path], value: Any) -> None:
    said = refusal(saved["llama"], num_hidden_layers=value)
    assert said.startswith("config.json cannot be used")
    assert "num_hidden_layers" in said


def test_no_heads(saved: dict[str, Path]) -> None:
    assert refusal(saved["llama"], num_attention_heads=0).endswith(
        "sets num_attention_heads to 0)"
    )


def test_a_number_in_a_message_is_the_files_own(saved: dict[str, Path]) -> None:
    said = refusal(saved["llama"], num_attention_heads=VAST)
    assert "numbers above 4194304 count as that" in said


# Sound models


def passes(folder: Path) -> bool:
    """Whether the folder passes, and its sizes were in fact compared."""
    checkpoint = inspect_checkpoint(str(folder))
    raw, _ = PretrainedConfig.get_config_dict(folder)
    return sizes.check(raw, checkpoint.auto, checkpoint.stored, "it") is not None


@pytest.mark.parametrize(
    "model_type",
    [
        "albert",  # all layers share one set of weights
        "bamba",  # recurrent states
        "deepseek_v3",  # experts, stored one by one
        "gpt_oss",  # experts, stored together
        "blenderbot",  # layers of an encoder and of a decoder
        "xglm",  # a table of positions that is not stored
        "zamba",  # a block that layers share
    ],
)
def test_sound_models_of_many_kinds_pass(model_type: str, tmp_path: Path) -> None:
    families.tiny(model_type).save_pretrained(tmp_path)
    assert passes(tmp_path)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("llama", {"max_position_embeddings": VAST}),  # rotary: there is no table
        ("llama", {"bos_token_id": 0, "pad_token_id": -1, "sliding_window": VAST}),
        ("llama", {"rope_theta": 10**11, "a_field_of_the_future": VAST}),
        ("bert", {"num_labels_of_old": VAST, "pooler_size": VAST}),
    ],
)
def test_fields_that_are_no_sizes_may_be_large(
    saved: dict[str, Path], tmp_path: Path, kind: str, changes: dict[str, Any]
) -> None:
    folder = shutil.copytree(saved[kind], tmp_path / kind)
    edit_json(folder / "config.json", **changes)
    assert passes(folder)


def test_a_body_without_its_head_passes(tmp_path: Path) -> None:
    GPT2Model(tiny("gpt2").config).save_pretrained(tmp_path)
    edit_json(tmp_path / "config.json", architectures=["GPT2LMHeadModel"])
    assert passes(tmp_path)


def test_packed_weights_may_be_few(saved: dict[str, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(saved["llama"], tmp_path / "packed")
    edit_weights(folder, packed)
    quantisation = {"quant_method": "fp8"}  # which takes no package
    edit_json(folder / "config.json", quantization_config=quantisation)
    assert passes(folder)


def packed(tensors: dict[str, Tensor]) -> None:
    """All matrices as one byte for eight numbers."""
    for name, tensor in tensors.items():
        if tensor.ndim == 2:
            tensors[name] = torch.zeros(tensor.numel() // 8, dtype=torch.uint8)


def test_tables_above_the_bound_pass_if_they_are_stored(
    saved: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizes, "COUNT", VOCABULARY // 2)
    monkeypatch.setattr(sizes, "MOST", (VOCABULARY // 2, VOCABULARY))
    assert passes(saved["llama"])


# How it is done


def test_the_hooks_are_gone_afterwards_and_random_numbers_are_left_alone(
    saved: dict[str, Path],
) -> None:
    before = torch.get_rng_state()
    assert "num_hidden_layers" in refusal(saved["llama"], num_hidden_layers=VAST)
    assert torch.equal(torch.get_rng_state(), before)
    many = nn.ModuleList(nn.Linear(1, 1) for _ in range(sizes.TENSORS + 2000))
    assert sum(1 for _ in many.parameters()) > sizes.TENSORS
