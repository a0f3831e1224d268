"""Rejects models and claims that do not exist by cheap looks at files: torch takes seconds."""

from __future__ import annotations

import ast
import difflib
import importlib.util
import os
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from assay.harness.checking import catalogue
from assay.harness.checking.profiles import check_profile
from assay.harness.models.loading import adapters, scales, tensors
from assay.harness.models.loading.folders import INDEX, SINGLE, read_json
from assay.harness.results.errors import BadInput
from assay.harness.results.specs import ModelKind, ModelSpec

FOLDER = catalogue.FOLDER
"""The folder of Assay's claims."""

MAPPINGS = (
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
    "MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES",
)
"""Transformers' mappings from the types of language models to their classes."""


def check(
    models: Sequence[str], claims: Sequence[str], profile: str, base: str | None = None
) -> None:
    """Raise `BadInput` for what the run would reject, as far as files show it.

    ``base`` is the base model of adapters, where the command names one.
    """
    check_profile(profile)
    if claims and (why := catalogue.misspelt(claims)):
        raise BadInput(f"--claim {why}")
    for model in models:
        spec = ModelSpec.parse(model)
        if spec.kind is ModelKind.CHECKPOINT:
            _check_path(spec.name, base)
        elif spec.kind is ModelKind.TINY and not spec.is_pattern:
            _check_type(spec.name)


def _check_path(name: str, base: str | None) -> None:
    """Reject a path that is not there, and a folder that lacks files or tensors.

    A hub id is OWNER/NAME or NAME, and may be there.
    """
    is_id = name.count("/") <= 1 and not name.startswith((".", "/", "~"))
    folder = Path(os.path.expanduser(name))
    if folder.suffix == ".py" and folder.is_file():
        why = f"its claims are --claims={name}, a model that it makes {name}:FUNCTION"
        raise BadInput(f"{name}: is a Python file; {why}")
    if not is_id and not folder.exists():
        raise BadInput(f"{name!r}: no such folder")
    has_weights = any((folder / each).is_file() for each in (SINGLE, INDEX))
    if adapters.read(name, base) is None and has_weights:
        stored = tensors.inspect(folder, name)
        settings = read_json(folder / "config.json", name).get("quantization_config")
        if isinstance(settings, dict):
            scales.refuse_lost(settings, stored, name)


def _check_type(name: str) -> None:
    """Reject a type that no mapping has; every type passes where no mapping can be read."""
    types = model_types()
    if types and name not in types:
        near = difflib.get_close_matches(name, sorted(types))
        hint = f"; near: {', '.join(near)}" if near else ""
        raise BadInput(
            f"transformers {version('transformers')} knows no model type {name!r}{hint}"
        )


def model_types() -> set[str]:
    """The types in the mappings of the installed transformers, read without importing it."""
    spec = importlib.util.find_spec("transformers")
    if spec is None or spec.origin is None:
        return set()
    file = Path(spec.origin).parent / "models" / "auto" / "modeling_auto.py"
    if not file.is_file():
        return set()
    return {
        name.value
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in MAPPINGS
        for pair in ast.walk(node.value)
        if isinstance(pair, ast.Tuple) and isinstance(name := pair.elts[0], ast.Constant)
        if isinstance(name.value, str)
    }
