"""Paths and configurations that name no usable model are refused in one clear line."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.harness.models.loading.loading import load
from assay.harness.tests.support.folders import edit_json, tiny
from assay.harness.tests.support.loading import PLAIN, refused


@pytest.mark.parametrize("spec", ["./none", "/none/at/all", "a/b/c", "~/none at all", "", "..x"])
def test_a_folder_that_does_not_exist_is_refused(spec: str) -> None:
    assert "no such folder" in refused(spec)


def test_a_file_is_refused_for_the_folder_that_holds_it(folder: Path) -> None:
    assert "is a file" in refused(folder / "model.safetensors")


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    assert "holds no model, there is no config.json" in refused(tmp_path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"model_type": "gpt2",', "config.json is not valid JSON"),
        ("\xff\xfe", "config.json is not valid JSON"),
        ("[1, 2]", "holds no JSON object but a list"),
        ("{}", "names no model_type"),
        ('{"model_type": 7}', "names no model_type"),
        ('{"model_type": "of_the_future"}', "'of_the_future' is unknown to transformers"),
    ],
)
def test_a_configuration_of_no_use_is_refused(folder: Path, content: str, said: str) -> None:
    (folder / "config.json").write_bytes(content.encode("latin-1"))
    assert said in refused(folder)


def test_a_configuration_that_contradicts_itself_is_refused(folder: Path) -> None:
    edit_json(folder / "config.json", n_head=3)
    assert "cannot be loaded" in refused(folder)


def test_a_context_that_is_shorter_than_prompts_of_claims_is_refused(tmp_path: Path) -> None:
    for size in (1, 3, 4):
        tiny("gpt2", max_position_embeddings=size).save_pretrained(tmp_path / str(size))
    assert "has a context of 1; at least 4 positions are needed" in refused(tmp_path / "1")
    assert "has a context of 3" in refused(tmp_path / "3")
    assert load(str(tmp_path / "4"), **PLAIN).model.config.n_positions == 4
