"""GGUF files: loaded as floats, and read with doubt before."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest
import torch

import assay
from assay.fixtures import subjects
from assay.harness.models.loading import gguf_files, loading
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


@pytest.mark.parametrize("kind", ["F16", "Q8_0"])
def test_the_laws_hold(tmp_path: Path, kind: str) -> None:
    gguf_written.written(tmp_path / "a.gguf", kind)
    model = subjects.load(str(tmp_path / "a.gguf"), Options()).model
    run = assay.check(model, claims=["C1", "C2", "C5", "C6", "C10", "F1"], profile="glance")
    run.require()
    upheld = {result.id for result in run.results if result.verdict.value == "upheld"}
    assert upheld == {"C1", "C2", "C5", "C6", "C10", "F1"}


def test_a_file_runs_in_another_dtype(half: Path) -> None:
    assert subjects.check(str(half), Options()) is torch.float32
    assert subjects.load(str(half), Options(dtype="bfloat16")).dtype is torch.bfloat16


def test_its_bars_stay_off_the_terminal(half: Path, capfd: pytest.CaptureFixture[str]) -> None:
    subjects.load(str(half), Options())
    assert "GGUF" not in capfd.readouterr().err


def test_without_the_package_one_line_names_it(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gguf_files, "find_spec", lambda name: None)
    assert refusal(file.parent).endswith("is of GGUF; install gguf (assay-lm[quantised])")


@pytest.mark.parametrize("share", [0.0001, 0.01, 0.1, 0.5, 0.999])
def test_a_file_that_is_truncated(file: Path, share: float) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole[: int(len(whole) * share)])
    assert "model.gguf is " in refusal(file)
    assert "copy or download it again" in refusal(file)


def test_something_else_by_that_name(file: Path) -> None:
    file.write_bytes(b"PK\x03\x04" + bytes(64))
    assert "model.gguf is not of GGUF: it begins with b'PK" in refusal(file)


def test_an_architecture_that_is_not_known(tmp_path: Path) -> None:
    path = tmp_path / "odd.gguf"
    gguf_written.written(path, "F16", "nosuch")
    assert "cannot read odd.gguf, of the architecture 'nosuch'" in refusal(path)


@pytest.mark.parametrize(
    ("at", "value"),
    [(8, 2**62), (16, 2**62), (24, 2**63), (4, 9)],
    ids=["tensors", "values", "a text's length", "version"],
)
def test_numbers_that_the_file_cannot_hold(file: Path, at: int, value: int) -> None:
    whole = bytearray(file.read_bytes())
    layout = "<I" if at == 4 else "<Q"
    whole[at : at + struct.calcsize(layout)] = struct.pack(layout, value)
    file.write_bytes(whole)
    assert "copy or download it again" in refusal(file)


def test_an_array_that_the_file_cannot_hold(file: Path) -> None:
    """Of texts: the package's reader goes through all that are promised."""
    whole = file.read_bytes()
    key = b"an.array"
    value = struct.pack("<Q", len(key)) + key + struct.pack("<IIQ", 9, 8, 2**60)
    values = struct.unpack_from("<Q", whole, 16)[0] + 1
    file.write_bytes(whole[:16] + struct.pack("<Q", values) + value + whole[24:])
    assert "its header ends beyond" in refusal(file)


def test_more_layers_than_are_stored(file: Path) -> None:
    whole = bytearray(file.read_bytes())
    key = b"llama.block_count"
    place = whole.index(key) + len(key)
    whole[place : place + 8] = struct.pack("<II", 4, 2**31)
    file.write_bytes(whole)
    assert "num_hidden_layers" in refusal(file)


def test_a_folder_with_safetensors_too(file: Path) -> None:
    tiny("llama").save_pretrained(file.parent)
    line = refusal(file.parent)
    assert line.endswith(
        "holds safetensors and 'model.gguf'; give the GGUF file's path, or a folder without it"
    )
    assert subjects.check(str(file), Options()) is torch.float32


def test_a_folder_with_several(file: Path) -> None:
    shutil.copy(file, file.with_name("other.gguf"))
    assert "holds 2 GGUF files; give one of them" in refusal(file.parent)


def test_one_part_of_a_file(file: Path) -> None:
    part = file.rename(file.with_name("model-00001-of-00002.gguf"))
    assert "is one file of several; join them first" in refusal(part)


def test_an_adapter_beside_it_is_not_loaded(file: Path) -> None:
    (file.parent / "adapter_config.json").write_text("{}")
    assert "holds an adapter" in refusal(file)
