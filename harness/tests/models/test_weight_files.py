"""Weight files that are missing, truncated, pickled or corrupt are refused before loading."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from assay.harness.models.loading import weight_files
from assay.harness.models.loading.loading import inspect_checkpoint, load
from assay.harness.results.errors import BadInput
from assay.harness.tests.support.folders import edit_json
from assay.harness.tests.support.loading import FC, PLAIN, refused


def test_a_folder_without_weights_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    assert "no model.safetensors and no model.safetensors.index.json" in refused(folder)


class Trap:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.path,)


def test_pickled_weights_are_refused_unopened(folder: Path, tmp_path: Path) -> None:
    trap = pickle.dumps(Trap(tmp_path / "opened"))
    (folder / "pytorch_model.bin").write_bytes(trap)
    assert load(str(folder), **PLAIN).model is not None, "safetensors beside a pickle are used"
    (folder / "model.safetensors").unlink()
    assert "pickled ('pytorch_model.bin')" in refused(folder)
    assert not (tmp_path / "opened").exists()
    pickle.loads(trap)
    assert (tmp_path / "opened").exists(), "the trap works"


@pytest.mark.parametrize("left", [0, 4, 100, 5000, -1])
def test_a_truncated_file_is_refused_before_loading(folder: Path, left: int) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:left])
    assert "model.safetensors is truncated" in refused(folder)
    with pytest.raises(BadInput):
        inspect_checkpoint(str(folder))


def test_a_truncated_shard_is_named(shards: Path) -> None:
    last = sorted(shards.glob("*.safetensors"))[-1]
    last.write_bytes(last.read_bytes()[:-3])
    assert f"{last.name} is truncated" in refused(shards)


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:8] + b"\x00" + content[9:],
        lambda content: content[:8] + content[8:].replace(b'"F32"', b'"F3X"', 1),
        lambda content: content[:8] + content[8:].replace(b'"shape"', b'"shope"', 1),
        lambda content: content[:8] + content[8:].replace(b"[16]", b"[17]", 1),
        lambda content: content + b"more",
        lambda content: (2).to_bytes(8, "little") + b"[]",
    ],
)
def test_a_corrupt_header_is_refused(folder: Path, damage: Any) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(damage(path.read_bytes()))
    assert "model.safetensors has a corrupt header" in refused(folder)


def test_a_pointer_in_place_of_weights_is_recognised(folder: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
    (folder / "model.safetensors").write_text(pointer)
    assert "git lfs pull" in refused(folder)


def test_an_index_that_names_a_missing_shard_is_refused(shards: Path) -> None:
    first = sorted(shards.glob("*.safetensors"))[0]
    first.unlink()
    assert f"names '{first.name}', which is not there" in refused(shards)


@pytest.mark.parametrize(
    ("mapping", "said"),
    [
        (None, "has no weight_map"),
        ({}, "has no weight_map"),
        ({"a": 3}, "names 3, which is not a file of this folder"),
        ({"a": "../model.safetensors"}, "which is not a file of this folder"),
        ({"a": "m" * 300}, "which does not end in .safetensors"),
    ],
)
def test_an_index_of_no_use_is_refused(shards: Path, mapping: Any, said: str) -> None:
    edit_json(shards / "model.safetensors.index.json", weight_map=mapping)
    assert said in refused(shards)


def test_an_index_without_metadata_is_refused(shards: Path) -> None:
    index = shards / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    index.write_text(json.dumps({"weight_map": content["weight_map"]}))
    assert 'has no metadata, without which transformers loads no shards; add "metadata"' in (
        refused(shards)
    )


def test_an_index_that_promises_too_much_is_refused(shards: Path) -> None:
    index = shards / "model.safetensors.index.json"
    weight_map = json.loads(index.read_text())["weight_map"]
    edit_json(index, weight_map=weight_map | {"more.weight": weight_map[FC]})
    assert f"{weight_map[FC]} lacks 'more.weight'" in refused(shards)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer_config.json"])
def test_a_pipe_is_not_waited_for(saved: dict[str, Path], tmp_path: Path, name: str) -> None:
    folder = tmp_path / "piped"
    shutil.copytree(saved["gpt2"], folder)
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    assert name in refused(folder)


def test_a_header_that_is_nested_too_deeply_is_corrupt(folder: Path) -> None:
    header = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    assert "corrupt header" in refused(folder)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "git lfs pull"),
        ("<!doctype html><html></html>", "is a web page; download the file again"),
        ("{", "JSONDecodeError"),
    ],
)
def test_what_a_download_left_in_place_of_a_configuration_is_named(
    tmp_path: Path, text: str, why: str
) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(BadInput, match=re.escape(why)):
        weight_files.read_json(tmp_path / "config.json", "model")
