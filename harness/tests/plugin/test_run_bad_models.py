"""Checkpoints and functions that cannot be judged: one line and exit code 4, before any claim."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from assay.harness.tests.support import folders, quantised
from assay.harness.tests.support.folders import edit_json
from assay.harness.tests.support.sessions import Project, law

Make = Callable[[Path], None]
"""Makes of a sound llama's folder, ``model``, what cannot be used."""

LACKING = "install gguf" if find_spec("gguf") is None else ""
"""What is said of any GGUF file where its package is missing."""


def unknown_method(folder: Path) -> None:
    quantised.quantised(folder, "squeeze")


def senseless_method(folder: Path) -> None:
    edit_json(folder / "config.json", quantization_config=["4bit"])


def gguf(folder: Path, architecture: bytes = b"llama", tensors: int = 10) -> None:
    """A file in place of the model, of which no more than the header is there."""
    shutil.rmtree(folder)
    folder.mkdir()
    key, name = b"general.architecture", architecture
    text = struct.pack("<Q", len(key)) + key + struct.pack("<IQ", 8, len(name)) + name
    header = b"GGUF" + struct.pack("<IQQ", 3, tensors, 1) + text
    (folder / "model.gguf").write_bytes(header)


def unknown_gguf(folder: Path) -> None:
    gguf(folder, b"nosuch", 0)


def missing_shard(folder: Path) -> None:
    shutil.rmtree(folder)
    folders.tiny("llama").save_pretrained(folder, max_shard_size="10KB")
    max(folder.glob("*.safetensors")).unlink()


def sound(folder: Path) -> None:
    pass


OWN = """
def text():
    return "a model"

def three():
    return 1, 2, 3
"""

CASES: dict[str, tuple[Make, str, str]] = {
    "a method that is not known": (unknown_method, "", "the quant_method 'squeeze'"),
    "a method that is none": (senseless_method, "", "that is not a JSON object"),
    "a truncated GGUF file": (gguf, "", LACKING or "is truncated or damaged"),
    "an unknown architecture": (unknown_gguf, "", LACKING or "cannot read model.gguf"),
    "a missing shard": (missing_shard, "", ".safetensors', which is not there"),
    "a revision of a folder": (sound, "--revision=v1", "has no revision 'v1'"),
    "a dtype like auto": (sound, "--dtype=auto32", "'auto32': unsupported dtype; choose from"),
    "a function that returns text": (
        sound,
        "--model=own.py:text",
        "own.py:text: is str; give a model, or a function from ids to logits",
    ),
    "a function that returns three": (sound, "--model=own.py:three", "returns 3 values"),
}
"""What is made of the folder, a further option, and what the line says."""


def test_every_case_is_one_line_before_anything_runs(project: Project) -> None:
    project.claims(law(1))
    project.write("own.py", OWN)
    commands = []
    for number, (make, option, _) in enumerate(CASES.values()):
        folder = project.folder / f"model{number}"
        folders.tiny("llama").save_pretrained(folder)
        make(folder)
        named = [] if option.startswith("--model=") else [f"--model=model{number}"]
        commands.append([*filter(None, [option]), *named])
    runs = project.runs(*commands)
    wrong = {
        case: run.output
        for (case, (_, _, words)), run in zip(CASES.items(), runs, strict=True)
        if not run.refused(words)
    }
    assert not wrong
    assert project.ran == []
