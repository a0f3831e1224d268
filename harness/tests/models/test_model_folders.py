"""Folders that hold no model, or hold it in another form: the message says what to do."""

from __future__ import annotations

import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.harness.models.loading.loading import load
from assay.harness.tests.support import loading
from assay.harness.tests.support.folders import edit_json, edit_weights

MATRIX = "transformer.h.1.mlp.c_fc.weight"


def refused(folder: Path) -> str:
    """The one line with which ``folder`` is refused, without its name."""
    return loading.refused(folder).removeprefix(f"{folder}: ")


def loads(folder: Path) -> bool:
    return load(str(folder), dtype=torch.float32, device=torch.device("cpu")).model is not None


# Weights that are not in safetensors


@pytest.mark.parametrize("name", ["pytorch_model-00001-of-00002.bin", "model.pt", "model.ckpt"])
def test_an_index_that_names_a_pickle(folder: Path, name: str) -> None:
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(pickle.dumps({}))
    index = {"weight_map": {MATRIX: name}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    said = refused(folder)
    assert f"its weights are pickled (model.safetensors.index.json names '{name}')" in said
    assert "convert it to safetensors with save_pretrained" in said


def archive(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as opened:
        opened.writestr("archive/data.pkl", pickle.dumps({}))


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (archive, "is an archive of pickles, not safetensors"),
        (lambda path: torch.save({}, path), "is an archive of pickles, not safetensors"),
        (lambda path: path.write_bytes(pickle.dumps([0] * 9)), "is a pickle, not safetensors"),
        (lambda path: path.write_bytes(b"GGUF\3\0\0\0" + bytes(64)), "is a GGUF file"),
        (
            lambda path: path.write_text("<!DOCTYPE html>\n404"),
            "is a web page; download",
        ),
    ],
)
def test_a_file_that_is_named_like_safetensors(folder: Path, write: Any, said: str) -> None:
    write(folder / "model.safetensors")
    assert f"model.safetensors {said}" in refused(folder)


def test_a_truncated_header_is_not_taken_for_a_pickle(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes((0x280).to_bytes(8, "little") + b"{")
    assert "is truncated or corrupt" in refused(folder)


@pytest.mark.parametrize("name", ["a.txt", "a.SAFETENSORS", "a.safetensors.old"])
@pytest.mark.parametrize("by", ["index", "config"])
def test_a_file_of_weights_by_another_ending(folder: Path, name: str, by: str) -> None:
    torch.save({MATRIX: torch.zeros(1)}, folder / name)
    if by == "config":
        edit_json(folder / "config.json", transformers_weights=name)
    else:
        (folder / "model.safetensors").unlink()
        index = {"metadata": {}, "weight_map": {MATRIX: name}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert f"names {name!r}, which does not end in .safetensors" in refused(folder)


@pytest.mark.parametrize("bare", [True, False], ids=["alone", "with a configuration"])
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("tf_model.h5", "TensorFlow"),
        ("flax_model.msgpack", "Flax"),
        ("consolidated.safetensors", "the layout of its makers"),
    ],
)
def test_weights_of_another_format(folder: Path, bare: bool, name: str, kind: str) -> None:
    for path in folder.iterdir():
        if bare or path.suffix == ".safetensors":
            path.unlink()
    (folder / name).touch()
    said = refused(folder)
    assert f"'{name}' is of {kind}: convert it to a folder with config.json and safeten" in said
    assert ("there is no config.json" in said) is bare


def test_a_folder_around_a_models_folder(folder: Path) -> None:
    said = "holds no model, there is no config.json in it; it is in 'model', give that folder"
    assert refused(folder.parent) == said


def test_a_model_beside_an_adapter(folder: Path) -> None:
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "owner/base"}')
    assert refused(folder).startswith("holds an adapter (adapter_config.json) and a model")


def test_a_model_type_of_many_characters(folder: Path) -> None:
    edit_json(folder / "config.json", model_type="x" * 100_000)
    assert len(refused(folder)) < 300


# Weights that are no floats


def test_a_method_of_quantisation_that_transformers_does_not_know(folder: Path) -> None:
    edit_json(folder / "config.json", quantization_config={"quant_method": "nosuch"})
    assert "names the quant_method 'nosuch', which is unknown to transformers" in refused(folder)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "has a quantization_config without a quant_method"),
        ({"quant_method": ["awq"]}, "has a quantization_config without a quant_method"),
        ("awq", "has a quantization_config that is not a JSON object"),
    ],
)
def test_quantisation_that_says_nothing(folder: Path, settings: Any, said: str) -> None:
    edit_json(folder / "config.json", quantization_config=settings)
    assert f"config.json {said}" in refused(folder)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("activation_function", "gelluu", "config.json sets activation_function to gelluu"),
        ("num_attention_heads", "two", "sets num_attention_heads to two"),
        ("dtype", ["float32"], "it sets dtype to ['float32']"),
    ],
)
def test_a_value_that_transformers_does_not_take(
    folder: Path, field: str, value: Any, said: str
) -> None:
    edit_json(folder / "config.json", **{field: value})
    assert said in refused(folder)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int64, torch.bool])
def test_weights_that_are_integers(folder: Path, dtype: torch.dtype) -> None:
    edit_weights(folder, lambda tensors: tensors.update({MATRIX: tensors[MATRIX].to(dtype)}))
    said = refused(folder)
    assert f"in place of floats in '{MATRIX}', and config.json" in said


def test_parameters_that_are_integers_by_any_name(folder: Path) -> None:
    bias = "transformer.h.0.attn.c_attn.bias"
    edit_weights(folder, lambda tensors: tensors.update({bias: tensors[bias].to(torch.int8)}))
    assert f"its weights hold I8 in place of floats in '{bias}'" in refused(folder)


def test_masks_and_positions_of_old_versions_are_integers(folder: Path) -> None:
    def change(tensors: dict[str, Tensor]) -> None:
        tensors["transformer.h.0.attn.bias"] = torch.ones(1, 1, 32, 32, dtype=torch.uint8)
        tensors["transformer.position_ids"] = torch.arange(32)

    edit_weights(folder, change)
    assert loads(folder)


# Other files


@pytest.mark.parametrize(
    ("content", "said"), [("{", "is not valid JSON"), ("[1]", "holds no JSON object but a list")]
)
def test_broken_settings_of_generation(folder: Path, content: str, said: str) -> None:
    (folder / "generation_config.json").write_text(content)
    assert f"generation_config.json {said}" in refused(folder)
    (folder / "generation_config.json").unlink()
    assert loads(folder)


def test_the_configuration_for_this_version_is_the_one_that_is_checked(folder: Path) -> None:
    """Transformers reads it in place of config.json."""
    content = json.loads((folder / "config.json").read_text())
    code = content | {"auto_map": {"AutoModelForCausalLM": "modeling_own.Own"}}
    (folder / "config.4.0.0.json").write_text(json.dumps(code))
    edit_json(folder / "config.json", configuration_files=["config.4.0.0.json"])
    assert "requires code of its own" in refused(folder)
    (folder / "config.4.0.0.json").write_text("{")
    assert "config.4.0.0.json is not valid JSON" in refused(folder)


@pytest.mark.parametrize("name", ["../config.4.0.0.json", "/config.4.0.0.json", 4])
def test_a_configuration_in_another_folder_is_not_read(folder: Path, name: Any) -> None:
    (folder.parent / "config.4.0.0.json").write_text("no JSON")
    edit_json(folder / "config.json", configuration_files=[name])
    assert refused(folder) == f"config.json names {name!r}, which is not a file of this folder"
