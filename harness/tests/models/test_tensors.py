"""The tensors of a folder's files: listed by name without reading them, and read one by one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from assay.harness.models.loading import loading, tensors
from assay.harness.results.errors import BadInput
from assay.harness.tests.support.folders import edit_json
from assay.harness.tests.support.loading import FC, refused


def test_every_tensor_of_a_folder_is_listed_and_read(folder: Path, shards: Path) -> None:
    expected = load_file(folder / "model.safetensors")
    for each in (folder, shards):
        stored = tensors.inspect(each, "it").tensors
        assert stored.keys() == expected.keys()
        for name, tensor in expected.items():
            assert torch.equal(stored[name].read(), tensor)
            assert (stored[name].shape, stored[name].dtype) == (tensor.shape, tensor.dtype)
            assert stored[name].path.parent == each
    assert len({tensor.path for tensor in stored.values()}) > 2


def test_every_dtype_has_its_own_tensor(tmp_path: Path) -> None:
    dtypes = (getattr(torch, name) for name in tensors.DTYPES.values())
    expected = {str(dtype): torch.ones(2, 3).to(dtype) for dtype in dtypes}
    save_file(expected, tmp_path / "model.safetensors")
    for name, tensor in tensors.inspect(tmp_path, "it").tensors.items():
        read = tensor.read()
        assert (str(read.dtype), read.shape) == (name, tensor.shape)
        assert read.dtype == tensor.dtype
        assert torch.equal(read.to(torch.complex64), torch.ones(2, 3).to(torch.complex64))


@pytest.mark.parametrize(
    ("dtypes", "exact"),
    [
        (["float16"], "float16"),
        (["bfloat16", "int8"], "bfloat16"),
        (["bfloat16", "float16"], "float32"),
        (["float8_e4m3fn"], "float32"),
        (["float16", "float64"], "float64"),
    ],
)
def test_one_dtype_holds_all_of_them_exactly(
    tmp_path: Path, dtypes: list[str], exact: str
) -> None:
    every = {name: torch.ones(3, dtype=getattr(torch, name)) for name in dtypes}
    save_file(every, tmp_path / "model.safetensors")
    stored = tensors.inspect(tmp_path, "it")
    assert stored.exact == getattr(torch, exact)
    assert stored.floats == 3 * sum("float" in name for name in dtypes)
    assert stored.other_bytes == 3 * ("int8" in dtypes)


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "cut in its header": lambda content: content[:100],
    "cut by a byte": lambda content: content[:-1],
    "a byte of the header": lambda content: content[:8] + b"\x00" + content[9:],
    "a dtype": lambda content: content.replace(b'"F32"', b'"F3X"', 1),
    "a shape": lambda content: content.replace(b"[16]", b"[17]", 1),
    "more bytes": lambda content: content + b"more",
    "no object": lambda content: (2).to_bytes(8, "little") + b"[]",
    "nested deeply": lambda content: (600_001).to_bytes(8, "little") + b'{"a":' * 120_000 + b"1",
    "a pickle": lambda content: b"\x80\x04\x95" + bytes(64),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_rejected_by_name_before_it_is_loaded(
    folder: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "_from_pretrained", None)
    path = folder / "model.safetensors"
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    message = refused(folder)
    assert "model.safetensors is truncated or damaged (SafetensorError: " in message
    assert message.endswith("; copy or download it again")


def test_a_truncated_shard_is_named(shards: Path) -> None:
    last = max(shards.glob("*.safetensors"))
    last.write_bytes(last.read_bytes()[:-3])
    assert f"{last.name} is truncated or damaged" in refused(shards)


def test_a_file_that_changed_since_it_was_listed_is_rejected(folder: Path) -> None:
    tensor = tensors.inspect(folder, "it").tensors[FC]
    tensor.path.write_bytes(tensor.path.read_bytes()[:-1])
    with pytest.raises(BadInput, match=r"model\.safetensors is truncated"):
        tensor.read()


def test_a_pointer_in_place_of_weights_is_recognised(folder: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
    for name in ("model.safetensors", "config.json"):
        (folder / name).write_text(pointer)
        assert "it is a Git LFS pointer: run `git lfs pull`" in refused(folder)


def test_an_index_that_promises_too_much_is_rejected(shards: Path) -> None:
    index = shards / "model.safetensors.index.json"
    weight_map = json.loads(index.read_text())["weight_map"]
    edit_json(index, weight_map=weight_map | {"more.weight": weight_map[FC]})
    assert f"{weight_map[FC]} lacks 'more.weight', which the index names" in refused(shards)
