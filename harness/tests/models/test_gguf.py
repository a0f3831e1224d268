"""GGUF files: loaded as floats, and rejected in one line where they cannot be."""

from __future__ import annotations

import shutil
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import assay
from assay.fixtures import subjects
from assay.harness.models.loading import loading, tensors
from assay.harness.models.loading.runs import Options
from assay.harness.results.errors import BadInput
from assay.harness.tests.support import gguf_written
from assay.harness.tests.support.folders import tiny

gguf = pytest.importorskip("gguf", reason="missing package: gguf")

IDS = torch.arange(3, 27).reshape(2, 12)


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound file in float16; not to be changed."""
    path = tmp_path_factory.mktemp("gguf") / "half.gguf"
    gguf_written.written(path, "F16")
    return path


@pytest.fixture
def file(half: Path, tmp_path: Path) -> Path:
    """A file that a test may damage, alone in its folder."""
    (tmp_path / "alone").mkdir()
    return Path(shutil.copy(half, tmp_path / "alone" / "model.gguf"))


def refusal(path: Path) -> str:
    """The one line, before anything is loaded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "_from_pretrained", None)
        with pytest.raises(BadInput) as rejected:
            subjects.check(str(path), Options())
    assert str(rejected.value).isprintable()
    return str(rejected.value)


@pytest.mark.parametrize(("kind", "error"), [("F32", 0.0), ("F16", 1e-3), ("Q8_0", 2e-2)])
def test_a_file_has_the_logits_of_its_weights(tmp_path: Path, kind: str, error: float) -> None:
    model = gguf_written.written(tmp_path / f"{kind}.gguf", kind)
    shutil.rmtree(tmp_path / "dense")
    for spec in (tmp_path, tmp_path / f"{kind}.gguf"):
        subject = subjects.load(str(spec), Options())
        assert subject.dtype is torch.float32
        expected = model(IDS).logits.detach()
        off = float((subject(IDS).rows["logits"] - expected).norm() / expected.norm())
        assert off <= error
        assert (off > 0.0) is (kind != "F32")


def test_the_laws_hold(tmp_path: Path) -> None:
    gguf_written.written(tmp_path / "a.gguf", "Q8_0")
    model = subjects.load(str(tmp_path / "a.gguf"), Options()).model
    run = assay.check(model, claims=["C1", "C6", "C10"], profile="glance")
    run.require()
    upheld = {result.id for result in run.results if result.verdict.value == "upheld"}
    assert upheld == {"C1", "C6", "C10"}


def test_a_file_runs_in_another_dtype(half: Path) -> None:
    assert subjects.check(str(half), Options()) is torch.float32
    assert subjects.load(str(half), Options(dtype="bfloat16")).dtype is torch.bfloat16


def test_its_bars_stay_off_the_terminal(half: Path, capfd: pytest.CaptureFixture[str]) -> None:
    subjects.load(str(half), Options())
    assert "GGUF" not in capfd.readouterr().err


def test_without_the_package_one_line_names_it(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    assert refusal(file.parent).endswith("is of GGUF; install gguf (assay-lm[quantised])")


@pytest.mark.parametrize(
    ("kind", "error"), [("F32", 0.0), ("F16", 1e-3), ("BF16", 1e-2), ("Q8_0", 2e-2)]
)
def test_every_tensor_is_listed_and_read_as_floats(
    tmp_path: Path, kind: str, error: float
) -> None:
    model = gguf_written.written(tmp_path / "a.gguf", kind)
    stored = tensors.inspect(tmp_path / "a.gguf", "it")
    assert len(stored.tensors) == len(model.state_dict())
    weight = model.model.layers[1].mlp.up_proj.weight.detach()
    tensor = stored.tensors["blk.1.ffn_up.weight"]
    read = tensor.read()
    assert (read.dtype, read.shape) == (tensor.dtype, tensor.shape)
    assert tensor.dtype is {"F16": torch.float16, "BF16": torch.bfloat16}.get(kind, torch.float32)
    off = float((read - weight).norm() / weight.norm())
    assert off <= error
    assert (off > 0.0) is (kind != "F32")


def cut(content: bytes, share: float) -> bytes:
    return content[: int(len(content) * share)]


def with_more_layers(content: bytes) -> bytes:
    key = b"llama.block_count"
    end = content.index(key) + len(key)
    return content[:end] + struct.pack("<II", 4, 2**31) + content[end + 8 :]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda content: cut(content, 0.0001), "model.gguf is truncated or damaged"),
        (lambda content: cut(content, 0.01), "model.gguf is truncated or damaged"),
        (lambda content: cut(content, 0.999), "model.gguf is truncated or damaged"),
        (lambda content: b"", "model.gguf is truncated or damaged"),
        (lambda content: b"PK\x03\x04" + bytes(64), "GGUF magic invalid"),
        (lambda content: content[:4] + b"\x09\0\0\0" + content[8:], "version 9"),
        (lambda content: content.replace(b"llama", b"nosch"), "cannot read model.gguf"),
        (with_more_layers, "its configuration cannot be used (a model of"),
    ],
    ids=[
        "magic",
        "header",
        "last byte",
        "empty",
        "another format",
        "version",
        "architecture",
        "layers",
    ],
)
def test_a_damaged_file(file: Path, damage: Callable[[bytes], bytes], said: str) -> None:
    file.write_bytes(damage(file.read_bytes()))
    assert said in refusal(file)


def test_a_folder_with_safetensors_too(file: Path) -> None:
    tiny("llama").save_pretrained(file.parent)
    line = refusal(file.parent)
    assert line.endswith(
        "holds safetensors and 'model.gguf'; give the GGUF file's path, or a folder without it"
    )
    assert subjects.check(str(file), Options()) is torch.float32


def test_an_adapter_beside_it_is_not_loaded(file: Path) -> None:
    (file.parent / "adapter_config.json").write_text("{}")
    assert "holds an adapter" in refusal(file)
