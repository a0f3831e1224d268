"""The files of a model's folder: its JSON, and which of them hold weights; opens no pickle."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from assay.harness.results.errors import BadInput, brief, listed

ENDING = ".safetensors"
"""Transformers reads files of weights by other endings as pickles."""

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"

ADAPTER, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"

GGUF = ".gguf"

OF_SENTENCE_TRANSFORMERS = re.compile(r'"sentence_transformers\.[\w.]*\bTransformer"')
"""The module in modules.json that is a model of transformers without a head."""

OTHER_FORMATS = {
    **dict.fromkeys(
        ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl"),
        "is pickled, and opening a pickle can run any code",
    ),
    "*.h5": "is of TensorFlow",
    "*.msgpack": "is of Flax",
    "*.onnx": "is of ONNX",
    "consolidated*": "is of the layout of its makers",
    "model_index.json": "is of diffusers",
}
"""Files that identify another format of weights, and what a message says of them."""

POINTER = b"version https://git-lfs"
"""The first bytes of what git leaves in place of a large file."""


def read_json(path: Path, spec: str) -> dict[str, Any]:
    """The object in a JSON file of the model ``spec``; raises `BadInput`."""
    if not path.exists():
        hint = in_place_of_weights(path.parent)
        inner = sorted(each.parent.name for each in path.parent.glob(f"*/{path.name}"))
        hint = hint or (f"; it is in {listed(inner)}, give that folder" if inner else "")
        raise BadInput(f"{spec}: holds no model, there is no {path.name} in it{hint}")
    if not path.is_file():  # a pipe may block
        raise BadInput(f"{spec}: {path.name} is not a regular file")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{spec}: {path.name} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        why = pointer(path) or brief(error, 80)
        raise BadInput(f"{spec}: {path.name} is not valid JSON ({why})") from error
    if not isinstance(content, dict):
        raise BadInput(f"{spec}: {path.name} holds no JSON object but a {type(content).__name__}")
    return content


def is_of_sentence_transformers(folder: Path) -> bool:
    """Whether sentence-transformers loads the model, as modules.json says: by `AutoModel`.

    Its folders often name a class with a head that their weights lack.
    """
    path = folder / "modules.json"
    try:
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
    except (OSError, ValueError):
        return False
    return OF_SENTENCE_TRANSFORMERS.search(text) is not None


def pointer(path: Path) -> str:
    """What to do about a pointer of Git LFS in place of a file; empty for anything else."""
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        beginning = file.read(len(POINTER))
    return "it is a Git LFS pointer: run `git lfs pull`" if beginning == POINTER else ""


def refuse_adapters(folder: Path, spec: str) -> None:
    """Raise `BadInput` for a folder with an adapter in place of a model, or with both.

    Transformers ignores the adapter, or loads it and its base if peft is installed.
    """
    if (folder / ADAPTER).exists():
        raise BadInput(f"{spec}: holds an adapter ({ADAPTER}), which is no base; give a model")


def gguf_file(path: Path, spec: str) -> Path | None:
    """``path`` itself if it is a GGUF file, or the one in this folder; None if there is none.

    Raises `BadInput` for several, for one of several parts, and for one alongside safetensors.
    """
    files = [path] if path.suffix == GGUF else sorted(path.glob(f"*{GGUF}"))
    names = [file.name for file in files]
    if files and path.is_dir() and any(path.glob(f"*{ENDING}")):
        raise BadInput(
            f"{spec}: holds safetensors and {listed(names, 1)}; give the GGUF file's path, or a "
            "folder without it"
        )
    if len(files) > 1:
        raise BadInput(f"{spec}: holds {len(files)} GGUF files; give one of them: {listed(names)}")
    return files[0] if files else None


def weight_files(folder: Path, spec: str, chosen: object = None) -> dict[Path, set[str]]:
    """The safetensors files of a model's folder, with the tensors that an index names in each.

    ``chosen`` is the file or the index that config.json names (``transformers_weights``), if any.
    Raises `BadInput` where there is none, or one is missing, elsewhere, or by another ending.
    """
    by_index = isinstance(chosen, str) and chosen.endswith(".json")
    single = folder / (chosen if isinstance(chosen, str) and not by_index else SINGLE)
    index = folder / (chosen if isinstance(chosen, str) and by_index else INDEX)
    if isinstance(chosen, str) and Path(chosen).name != chosen:
        raise BadInput(f"{spec}: config.json names {chosen!r}, which is not a file of this folder")
    _require_safetensors([single.name], "config.json", spec)
    if single.is_file() and not by_index:
        return {single: set()}
    if not index.is_file():
        raise BadInput(
            f"{spec}: holds no weights in safetensors: no {single.name} and no {index.name}"
            + in_place_of_weights(folder)
        )
    files: dict[Path, set[str]] = {}
    for tensor, name in weight_map(index, spec).items():
        files.setdefault(folder / name, set()).add(tensor)
    if absent := sorted(path.name for path in files if not path.is_file()):
        raise BadInput(f"{spec}: {index.name} names {listed(absent)}, which is not there")
    return files


def weight_map(index: Path, spec: str) -> dict[str, str]:
    """The file of each tensor, from a sharded checkpoint's index; raises `BadInput`."""
    files = read_json(index, spec).get("weight_map")
    if not isinstance(files, dict) or not files:
        raise BadInput(f"{spec}: {index.name} has no weight_map, so its shards are not known")
    _require_safetensors(files.values(), index.name, spec)
    return files


def _require_safetensors(names: Iterable[Any], where: str, spec: str) -> None:
    for name in names:
        if not isinstance(name, str) or Path(name).name != name:
            raise BadInput(f"{spec}: {where} names {name!r}, which is not a file of this folder")
        if not name.endswith(ENDING):
            raise BadInput(
                f"{spec}: {where} names {name!r}, which does not end in {ENDING}: transformers "
                "would read it as a pickle; convert it to safetensors with save_pretrained"
            )


def in_place_of_weights(folder: Path) -> str:
    """The end of a message on a folder without weights: its other format, if any."""
    for pattern, words in OTHER_FORMATS.items():
        if names := sorted(path.name for path in folder.glob(pattern)):
            return (
                f"; {listed(names, 1)} {words}: convert it to a folder with config.json "
                "and safetensors (save_pretrained), or get the model so"
            )
    return ""
