"""Recognises folders in other formats than safetensors, and says how to convert them."""

from __future__ import annotations

from pathlib import Path

from assay.harness.results.errors import BadInput, listed

ADAPTER = "adapter_config.json"

GGUF = ".gguf"
"""How the name of a GGUF file ends."""

FORMATS = {
    "*.h5": "TensorFlow",
    "*.msgpack": "Flax",
    "*.onnx": "ONNX",
    "consolidated*": "the layout of its makers",
    "model_index.json": "the layout of diffusers",
}
"""Files that identify other formats."""


def refuse_adapters(folder: Path, spec: str) -> None:
    """Raise `BadInput` for a folder with an adapter in place of a model, or with both.

    Transformers ignores the adapter, or loads it and its base if peft is installed.
    """
    if (folder / ADAPTER).exists():
        raise BadInput(f"{spec}: holds an adapter ({ADAPTER}), which is no base; give a model")


def in_place_of_a_model(folder: Path) -> str:
    """The end of a message on a folder without config.json: its actual content, if known."""
    within = sorted(path.parent.name for path in folder.glob("*/config.json"))
    return beside(folder) or (f"; it is in {listed(within)}, give that folder" if within else "")


def beside(folder: Path) -> str:
    """The end of a message on a folder without weights: its other format, if any."""
    for pattern, name in FORMATS.items():
        if names := sorted(path.name for path in folder.glob(pattern)):
            return (
                f"; {listed(names, 1)} is of {name}: convert it to a folder with config.json "
                "and safetensors (save_pretrained), or get the model so"
            )
    return ""
