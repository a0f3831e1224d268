"""Folders that hold no model, or hold it in another form: the message says what to do."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.harness.models.loading.loading import load
from assay.harness.tests.support import loading
from assay.harness.tests.support.folders import edit_json, edit_weights
from assay.harness.tests.support.loading import FC, PLAIN

INDEX = "model.safetensors.index.json"


def refused(folder: Path) -> str:
    """The one line with which ``folder`` is refused, without its name."""
    return loading.refused(folder).removeprefix(f"{folder}: ")


# Weights that are not in safetensors


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.path,)


def test_pickled_weights_are_refused_unopened(folder: Path, tmp_path: Path) -> None:
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Trap(tmp_path / "opened")))
    assert load(str(folder), **PLAIN).model is not None, "safetensors beside a pickle are used"
    (folder / "model.safetensors").unlink()
    said = refused(folder)
    assert "'pytorch_model.bin' is pickled, and opening a pickle can run any code" in said
    assert "convert it to a folder with config.json and safetensors (save_pretrained)" in said
    assert not (tmp_path / "opened").exists()


@pytest.mark.parametrize("name", ["model-00001-of-00002.bin", "a.pt", "a.SAFETENSORS", "m" * 300])
@pytest.mark.parametrize("by", ["index", "config"])
def test_a_file_of_weights_by_another_ending(folder: Path, name: str, by: str) -> None:
    if by == "config":
        edit_json(folder / "config.json", transformers_weights=name)
    else:
        (folder / "model.safetensors").unlink()
        (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": {FC: name}}))
    assert f"names {name!r}, which does not end in .safetensors" in refused(folder)


@pytest.mark.parametrize("bare", [True, False], ids=["alone", "with a configuration"])
@pytest.mark.parametrize(
    ("name", "kind"),
    [("tf_model.h5", "TensorFlow"), ("consolidated.safetensors", "the layout of its makers")],
)
def test_weights_of_another_format(folder: Path, bare: bool, name: str, kind: str) -> None:
    for path in folder.iterdir():
        if bare or path.suffix == ".safetensors":
            path.unlink()
    (folder / name).touch()
    said = refused(folder)
    assert f"'{name}' is of {kind}: convert it to a folder with config.json and safeten" in said
    assert ("there is no config.json" in said) is bare


@pytest.mark.parametrize(
    ("mapping", "said"),
    [
        (None, "has no weight_map"),
        ({}, "has no weight_map"),
        ({"a": 3}, "names 3, which is not a file of this folder"),
        ({"a": "../model.safetensors"}, "which is not a file of this folder"),
    ],
)
def test_an_index_of_no_use_is_refused(shards: Path, mapping: Any, said: str) -> None:
    edit_json(shards / INDEX, weight_map=mapping)
    assert said in refused(shards)


def test_a_missing_shard_is_named(shards: Path) -> None:
    (missing := max(shards.glob("*.safetensors"))).unlink()
    assert f"names '{missing.name}', which is not there" in refused(shards)


def test_a_folder_without_weights_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    assert "no model.safetensors and no model.safetensors.index.json" in refused(folder)


def test_a_folder_around_a_models_folder(folder: Path) -> None:
    said = "holds no model, there is no config.json in it; it is in 'model', give that folder"
    assert refused(folder.parent) == said


# Weights that are no floats


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "has a quantization_config without a quant_method"),
        ({"quant_method": ["awq"]}, "has a quantization_config without a quant_method"),
        ("awq", "has a quantization_config that is not a JSON object"),
        ({"quant_method": "nosuch"}, "names the quant_method 'nosuch', which is unknown to trans"),
    ],
)
def test_quantisation_that_transformers_would_ignore(
    folder: Path, settings: Any, said: str
) -> None:
    edit_json(folder / "config.json", quantization_config=settings)
    assert f"config.json {said}" in refused(folder)


@pytest.mark.parametrize("name", [FC, "transformer.h.0.attn.c_attn.bias"])
def test_weights_that_are_integers(folder: Path, name: str) -> None:
    edit_weights(folder, lambda tensors: tensors.update({name: tensors[name].to(torch.int8)}))
    assert f"its weights hold torch.int8 in place of floats in '{name}'" in refused(folder)


def test_masks_and_positions_of_old_versions_are_integers(folder: Path) -> None:
    def change(tensors: dict[str, Tensor]) -> None:
        tensors["transformer.h.0.attn.bias"] = torch.ones(1, 1, 32, 32, dtype=torch.uint8)
        tensors["transformer.position_ids"] = torch.arange(32)

    edit_weights(folder, change)
    assert load(str(folder), **PLAIN).model is not None


# Other files


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer_config.json"])
def test_a_pipe_is_not_waited_for(folder: Path, name: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)
    assert name in refused(folder)


def test_the_configuration_for_this_version_is_the_one_that_is_checked(folder: Path) -> None:
    """Transformers reads it in place of config.json."""
    content = json.loads((folder / "config.json").read_text())
    code = content | {"auto_map": {"AutoModelForCausalLM": "modeling_own.Own"}}
    (folder / "config.4.0.0.json").write_text(json.dumps(code))
    edit_json(folder / "config.json", configuration_files=["config.4.0.0.json"])
    assert "requires code of its own" in refused(folder)


@pytest.mark.parametrize("name", ["../config.4.0.0.json", 4])
def test_a_configuration_in_another_folder_is_not_read(folder: Path, name: Any) -> None:
    (folder.parent / "config.4.0.0.json").write_text("no JSON")
    edit_json(folder / "config.json", configuration_files=[name])
    assert refused(folder) == f"config.json names {name!r}, which is not a file of this folder"
