"""Checkpoints that cannot be judged: one line and exit code 4, before anything is loaded."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from assay.harness.tests.support import folders, quantised
from assay.harness.tests.support.folders import edit_json
from assay.harness.tests.support.sessions import Project, law

Make = Callable[[Path], None]
"""Makes of a sound llama's folder, ``model``, what cannot be used."""

LACKING = "install gguf" if find_spec("gguf") is None else ""
"""What is said of any GGUF file where its package is missing."""


def adapter(folder: Path, base: str) -> None:
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "adapter_config.json").write_text(
        f'{{"peft_type": "LORA", "base_model_name_or_path": "{base}", "r": 2}}'
    )
    save_file({"a": torch.zeros(1)}, folder / "adapter_model.safetensors")


def without_base(folder: Path) -> None:
    adapter(folder, "owner/elsewhere")


def of_itself(folder: Path) -> None:
    adapter(folder, str(folder))


def adapter_and_model(folder: Path) -> None:
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA"}')


def without_package(folder: Path) -> None:
    quantised.quantised(folder, "gptq", bits=4, group_size=128)


def unknown_method(folder: Path) -> None:
    quantised.quantised(folder, "squeeze")


def senseless_method(folder: Path) -> None:
    edit_json(folder / "config.json", quantization_config=["4bit"])


def float8(folder: Path) -> None:
    edit_json(folder / "config.json", dtype="float8_e4m3fn", torch_dtype=None)


def gguf(folder: Path, architecture: bytes = b"llama", tensors: int = 0) -> None:
    """A file in place of the model, of which no more than the header is there."""
    shutil.rmtree(folder)
    folder.mkdir()
    key, name = b"general.architecture", architecture
    text = struct.pack("<Q", len(key)) + key + struct.pack("<IQ", 8, len(name)) + name
    header = b"GGUF" + struct.pack("<IQQ", 3, tensors, 1) + text
    (folder / "model.gguf").write_bytes(header)


def truncated_gguf(folder: Path) -> None:
    gguf(folder, tensors=10)


def unknown_gguf(folder: Path) -> None:
    gguf(folder, b"nosuch")


def two_ggufs(folder: Path) -> None:
    gguf(folder)
    shutil.copy(folder / "model.gguf", folder / "other.gguf")


def part_of_gguf(folder: Path) -> None:
    gguf(folder)
    (folder / "model.gguf").rename(folder / "model-00001-of-00003.gguf")


def gguf_too(folder: Path) -> None:
    (folder / "model.gguf").write_bytes(b"GGUF")


def too_large(folder: Path) -> None:
    shutil.rmtree(folder)
    folders.tiny("gpt2").save_pretrained(folder)
    folders.vast(folder)


def missing_shard(folder: Path) -> None:
    shutil.rmtree(folder)
    folders.tiny("llama").save_pretrained(folder, max_shard_size="10KB")
    max(folder.glob("*.safetensors")).unlink()


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def sound(folder: Path) -> None:
    pass


OWN = """
def text():
    return "a model"

def none():
    return None

def three():
    return 1, 2, 3
"""

CASES: dict[str, tuple[Make, list[str], str]] = {
    "an adapter without its base": (
        without_base,
        [],
        "is an adapter of 'owner/elsewhere', which is no folder here; say --base=MODEL",
    ),
    "an adapter of itself": (of_itself, [], "is an adapter too; say --base=MODEL"),
    "an adapter with a base that is not there": (
        without_base,
        ["--base=/no/such/base"],
        "'/no/such/base': no such folder",
    ),
    "an adapter beside a model": (adapter_and_model, [], "holds an adapter"),
    "quantised weights without their package": (
        without_package,
        [],
        "its weights are quantised (gptq) and cannot be used (ImportError: ",
    ),
    "a method that is not known": (unknown_method, [], "the quant_method 'squeeze'"),
    "a method that is none": (senseless_method, [], "that is not a JSON object"),
    "an own dtype of 8 bits": (float8, [], "its own dtype is float8_e4m3fn; say --dtype=float32"),
    "a truncated GGUF file": (truncated_gguf, [], LACKING or "model.gguf is truncated or damaged"),
    "a GGUF file of no known architecture": (
        unknown_gguf,
        [],
        LACKING or "cannot read model.gguf",
    ),
    "two GGUF files": (two_ggufs, [], "holds 2 GGUF files; give one of them"),
    "a part of a GGUF file": (part_of_gguf, [], LACKING or "is one file of several"),
    "GGUF and safetensors": (gguf_too, [], "holds safetensors and 'model.gguf'; give"),
    "a revision of a folder": (sound, ["--revision=v1"], "has no revision 'v1'"),
    "more than the memory holds": (too_large, [], "too little memory"),
    "a missing shard": (missing_shard, [], ".safetensors', which is not there"),
    "pickled weights": (pickled, [], "'pytorch_model.bin' is pickled"),
    "a dtype like auto": (sound, ["--dtype=auto32"], "'auto32': unsupported dtype; choose from"),
    "two dtypes": (sound, ["--dtype=auto,float32"], "'auto,float32': unsupported dtype"),
    "auto in capitals": (sound, ["--dtype=AUTO"], "'AUTO': unsupported dtype"),
    "a function that returns text": (
        sound,
        ["--model=own.py:text"],
        "own.py:text: is str; give a model, or a function from ids to logits",
    ),
    "a function that returns nothing": (sound, ["--model=own.py:none"], "is NoneType; give"),
    "a function that returns three": (sound, ["--model=own.py:three"], "returns 3 values"),
}
"""What is made of the folder, further options, and what the line says."""


def test_every_case_is_one_line_before_anything_runs(project: Project) -> None:
    if find_spec("gptqmodel"):
        pytest.skip("gptqmodel is installed: the case without a package needs it missing")
    project.claims(law(1))
    project.write("own.py", OWN)
    commands = []
    for number, (make, options, _) in enumerate(CASES.values()):
        folder = project.folder / f"model{number}"
        folders.tiny("llama").save_pretrained(folder)
        make(folder)
        named = any(option.startswith("--model=") for option in options)
        commands.append([*options, *([] if named else [f"--model=model{number}"])])
    runs = project.runs(*commands)
    wrong = {
        case: run.output
        for (case, (_, _, words)), run in zip(CASES.items(), runs, strict=True)
        if not run.refused(words)
    }
    assert not wrong
    assert project.ran == []


def test_the_sound_folder_of_these_cases_is_judged(project: Project) -> None:
    project.claims(law(1))
    folders.tiny("llama").save_pretrained(project.folder / "model")
    assert project.run("--model=model").exit == 0
