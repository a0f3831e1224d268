"""Reads the files of a model's folder without loading weights: JSON, and safetensors headers."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from assay.harness.models.loading import other_formats
from assay.harness.results.errors import BadInput, brief, listed

PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")

BEGINNINGS = {
    b"version ": "is a Git LFS pointer; run `git lfs pull`",
    b"PK\x03\x04": "is an archive of pickles, not safetensors; convert it with save_pretrained",
    b"\x80": "is a pickle, not safetensors; convert it with save_pretrained",
    b"GGUF": "is a GGUF file, not safetensors; rename it to NAME.gguf",
    b"<": "is a web page; download the file again",
}
"""The first bytes of other formats, and advice; as a header's length they are too large."""

ENDING = ".safetensors"
"""How the name of every file of weights ends."""

LONGEST_HEADER = 100_000_000
"""Bytes; the limit of the safetensors format."""

MALFORMED = (ValueError, TypeError, AttributeError, LookupError, RecursionError)
"""Exceptions of a malformed header."""


def read_json(path: Path, spec: str) -> dict[str, Any]:
    """The object in a JSON file of the model ``spec``; raises `BadInput`."""
    _refuse_pipes(path, spec)
    if os.path.isfile(path) and (size := os.path.getsize(path)) > LONGEST_HEADER:
        raise BadInput(f"{spec}: {path.name} has {size} bytes, too many to be read as JSON")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        hint = other_formats.in_place_of_a_model(path.parent)
        raise BadInput(f"{spec}: holds no model, there is no {path.name} in it{hint}") from None
    except OSError as error:
        raise BadInput(f"{spec}: {path.name} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        why = _in_place_of_json(path) or brief(error, 80)
        raise BadInput(f"{spec}: {path.name} is not valid JSON ({why})") from error
    if not isinstance(content, dict):
        raise BadInput(f"{spec}: {path.name} holds no JSON object but a {type(content).__name__}")
    return content


def _in_place_of_json(path: Path) -> str:
    """What a download left in place of a JSON file, and advice; empty if it is not known."""
    with path.open("rb") as file:
        start = file.read(16)
    known = (b"version ", b"<")
    return next((f"it {BEGINNINGS[each]}" for each in known if start.startswith(each)), "")


def _refuse_pipes(path: Path, spec: str) -> None:
    """Reject anything but a regular file: a pipe may block, and a device has no end."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise BadInput(f"{spec}: {path.name} is not a regular file")


def weight_files(folder: Path, raw: dict[str, Any], spec: str) -> dict[Path, set[str]]:
    """The safetensors files to load, in transformers' order, with the promised tensors of each."""
    chosen = raw.get("transformers_weights")
    single = folder / "model.safetensors"
    index = folder / "model.safetensors.index.json"
    if isinstance(chosen, str):
        if Path(chosen).name != chosen:
            raise BadInput(
                f"{spec}: config.json names the weights {chosen!r}, "
                "which is not a file of this folder"
            )
        if chosen.endswith(".json"):
            index = folder / chosen
        else:
            single = folder / chosen
            _refuse_other_endings([chosen], spec, "config.json")
    for path in (single, index):
        _refuse_pipes(path, spec)
        if path.is_symlink() and not path.exists():
            raise BadInput(f"{spec}: {path.name} is a link to a file that is not there")
    if os.path.isfile(single) and index.name != chosen:
        return {single: set()}
    if not os.path.isfile(index):
        _refuse_pickles((path.name for path in folder.iterdir()), spec)
        raise BadInput(
            f"{spec}: holds no weights in safetensors: no {single.name} and no {index.name}"
            + other_formats.beside(folder)
        )
    files: dict[Path, set[str]] = {}
    for tensor, name in weight_map(index, spec).items():
        files.setdefault(folder / name, set()).add(tensor)
    if absent := sorted(path.name for path in files if not os.path.isfile(path)):
        raise BadInput(f"{spec}: {index.name} names {listed(absent)}, which is not there")
    return files


def weight_map(index: Path, spec: str) -> dict[str, str]:
    """The file of each tensor, from a sharded checkpoint's index."""
    content = read_json(index, spec)
    files = content.get("weight_map")
    if not isinstance(files, dict) or not files:
        raise BadInput(f"{spec}: {index.name} has no weight_map, so its shards are not known")
    for name in files.values():
        if not isinstance(name, str) or Path(name).name != name:
            raise BadInput(
                f"{spec}: {index.name} names {name!r}, which is not a file of this folder"
            )
    _refuse_pickles(files.values(), spec, f"{index.name} names ")
    _refuse_other_endings(files.values(), spec, index.name)
    if not isinstance(content.get("metadata"), dict):
        raise BadInput(
            f"{spec}: {index.name} has no metadata, without which transformers loads no shards; "
            'add "metadata": {} to it, or save the model again'
        )
    return files


def _refuse_other_endings(names: Iterable[str], spec: str, where: str) -> None:
    """Raise `BadInput` for a name by which transformers would take a file for a pickle."""
    for name in names:
        if not name.endswith(ENDING):
            raise BadInput(
                f"{spec}: {where} names {name!r}, which does not end in {ENDING}: transformers "
                "would read it as a pickle"
            )


def _refuse_pickles(names: Iterable[str], spec: str, where: str = "") -> None:
    """Raise `BadInput` if there is a file of pickled weights among ``names``."""
    pickles = sorted({n for n in names if any(fnmatch(n, pattern) for pattern in PICKLES)})
    if pickles:
        raise BadInput(
            f"{spec}: its weights are pickled ({where}{listed(pickles, 1)}), and opening a pickle "
            "can run any code; convert it to safetensors with save_pretrained"
        )


def read_header(path: Path, spec: str) -> dict[str, dict[str, Any]]:
    """The tensors that the header of a safetensors file of ``spec`` lists; raises `BadInput`.

    Compares the file's length with what the header promises, and runs the library's own checks
    (offsets, shapes, dtypes); reads no tensor.
    """
    _refuse_pipes(path, spec)
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(8)
            length = int.from_bytes(start, "little")
            if size < 8 or length > min(size - 8, LONGEST_HEADER):
                for beginning, advice in BEGINNINGS.items() if length > LONGEST_HEADER else ():
                    if start.startswith(beginning):
                        raise BadInput(f"{spec}: {path.name} {advice}")
                raise BadInput(
                    f"{spec}: {path.name} is truncated or corrupt: {size} bytes are too few for "
                    "its header; copy or download it again"
                )
            header = json.loads(file.read(length))
        if not isinstance(header, dict):
            raise ValueError(f"it holds no JSON object but a {type(header).__name__}")
        header.pop("__metadata__", None)
        promised = 8 + length + max((e["data_offsets"][1] for e in header.values()), default=0)
        if promised > size:
            raise BadInput(
                f"{spec}: {path.name} is truncated: {size} of {promised} bytes are there; "
                "copy or download it again"
            )
        with safe_open(path, framework="np") as opened:  # "pt" would allocate memory for it
            opened.keys()
    except OSError as error:
        raise BadInput(f"{spec}: {path.name} cannot be read: {brief(error, 80)}") from error
    except (*MALFORMED, SafetensorError) as error:
        raise BadInput(
            f"{spec}: {path.name} has a corrupt header ({brief(error, 80)}); "
            "copy or download it again"
        ) from error
    return header
