"""Checkpoints: from what was asked for to a folder whose files are whole, before a weight is read.

Everything here is cheap: configurations and the headers of safetensors files are read, weights
are not.  No pickle is ever opened, and no code of a repository is run unless it is asked for.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub import constants
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id
from transformers import CONFIG_MAPPING, AutoConfig, PretrainedConfig

from harness.errors import BadInput, NotHere, brief, listed
from harness.foreign import refuse_generation_code
from harness.hub import SMALL, fetch
from harness.remote_code import refuse_code_of_the_hub, refuse_remote_code
from harness.weight_files import read_header, read_json, weight_files, weight_map

FLOATS = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}
"""Floating-point dtypes by their names in a safetensors header."""

HEADS = (
    ("AutoModelForSeq2SeqLM", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING"),
    ("AutoModelForMaskedLM", "MODEL_FOR_MASKED_LM_MAPPING"),
    ("AutoModelForCausalLM", "MODEL_FOR_CAUSAL_LM_MAPPING"),
)
"""Transformers' own classes for language models with a head, and which types have one."""


@dataclass(frozen=True)
class Checkpoint:
    """A model folder that has passed every check short of loading it.

    ``name`` is what was asked for and ``folder`` where it lies.  ``auto`` is the auto class of
    transformers that loads it.  The weights hold ``floats`` floating-point numbers and
    ``others`` bytes of anything else; ``exact`` is the narrowest of float16, bfloat16, float32
    and float64 that holds all of the former as stored.
    """

    name: str
    folder: Path
    config: PretrainedConfig
    auto: type[Any]
    weights: tuple[Path, ...]
    floats: int
    others: int
    exact: torch.dtype
    trust_remote_code: bool = False

    def bytes_at(self, dtype: torch.dtype) -> int:
        """Memory that the weights take in ``dtype``."""
        return self.floats * dtype.itemsize + self.others


def inspect_checkpoint(
    spec: str, *, revision: str | None = None, trust_remote_code: bool = False
) -> Checkpoint:
    """Find the model that ``spec`` names and check its files without loading its weights.

    ``spec`` is a folder in the layout of ``save_pretrained``, a folder in the layout of the
    hub's cache, or a hub id, which alone may use the network.  Raises `BadInput`.
    """
    folder, hub = _locate(spec, revision)
    raw = read_json(folder / "config.json", spec)
    if not trust_remote_code:
        refuse_generation_code(folder, spec)
        refuse_remote_code(raw, "config.json", spec)
        refuse_code_of_the_hub(raw, spec)
    config = _configuration(raw, folder, spec, trust_remote_code)
    refuse_short_context(config, spec)
    try:
        auto = _auto_class(config, raw if trust_remote_code else {})
    except Exception as error:  # a model's module may want what is not installed
        raise BadInput(f"{spec}: its class cannot be imported ({brief(error)})") from error
    if hub:
        _fetch_code_and_weights(spec, revision, folder, trust_remote_code)
    weights = weight_files(folder, raw, spec)
    sizes: Counter[str] = Counter()
    others = 0
    for path, named in weights.items():
        header = read_header(path, spec)
        if absent := sorted(named - header.keys()):
            raise BadInput(f"{spec}: {path.name} lacks {listed(absent)}, which the index names")
        for entry in header.values():
            begin, end = entry["data_offsets"]
            if entry["dtype"] in FLOATS:
                sizes[entry["dtype"]] += math.prod(entry["shape"])
            else:
                others += end - begin
    return Checkpoint(
        name=spec,
        folder=folder,
        config=config,
        auto=auto,
        weights=tuple(weights),
        floats=sum(sizes.values()),
        others=others,
        exact=_exact(set(sizes)),
        trust_remote_code=trust_remote_code,
    )


def refuse_short_context(config: PretrainedConfig, spec: str) -> None:
    """Raise `BadInput` unless prompts of two tokens fit: most claims need an order to change."""
    context = getattr(config, "max_position_embeddings", None)
    if context in (0, 1):  # some types without a limit say -1
        raise BadInput(f"{spec}: has a context of {context}; at least 2 positions are needed")


def _locate(spec: str, revision: str | None) -> tuple[Path, bool]:
    """The folder that ``spec`` names, and whether it is the hub's."""
    path = os.path.expanduser(spec)
    if spec.strip() and os.path.isdir(path):
        return _local(Path(path), spec, revision), False
    if os.path.exists(path):
        raise BadInput(f"{spec}: is a file; give the folder that holds the model")
    try:
        validate_repo_id(spec)
    except HFValidationError:
        raise BadInput(f"{spec!r}: there is no such folder") from None
    return fetch(spec, revision, SMALL, needed=("config.json",)), True


def _local(folder: Path, spec: str, revision: str | None) -> Path:
    """``folder`` itself, or the snapshot of ``revision`` in it if it is the hub's cache of one."""
    snapshots = folder / "snapshots"
    if not snapshots.is_dir() or (folder / "config.json").exists():
        if revision is not None:
            raise BadInput(f"{spec}: is a plain folder and has no revision {revision!r}")
        return folder
    wanted = revision or constants.DEFAULT_REVISION
    reference = folder / "refs" / wanted
    commit = reference.read_text().strip() if reference.is_file() else wanted
    held = sorted(path.name for path in snapshots.iterdir() if path.is_dir())
    if commit not in held and revision is None and len(held) == 1:
        commit = held[0]
    if commit not in held:
        raise BadInput(f"{spec}: holds no revision {wanted!r} but {listed(held) or 'none'}")
    return snapshots / commit


def _configuration(
    raw: dict[str, Any], folder: Path, spec: str, trust_remote_code: bool
) -> PretrainedConfig:
    kind = raw.get("model_type")
    custom = trust_remote_code and "AutoConfig" in (raw.get("auto_map") or {})
    if not isinstance(kind, str) or not kind:
        raise BadInput(f"{spec}: config.json names no model_type, so it is no transformers model")
    if kind not in CONFIG_MAPPING and not custom:
        raise NotHere(
            f"{spec}: the model type {kind!r} is unknown to transformers "
            f"{transformers.__version__}; another version may know it"
        )
    try:
        return AutoConfig.from_pretrained(
            folder, trust_remote_code=trust_remote_code, local_files_only=not custom
        )
    except Exception as error:  # whatever a model's own configuration class raises
        raise BadInput(f"{spec}: config.json is of no use ({brief(error)})") from error


def _auto_class(config: PretrainedConfig, raw: dict[str, Any]) -> type[Any]:
    """The auto class for the model's head, or `AutoModel` if it has none for language.

    Asks what the checkpoint says that it is (``architectures``) against transformers' own
    mappings; a checkpoint that does not say gets the head that its type has.  An encoder that is
    a part of its type's body, such as T5EncoderModel, comes as its own class.
    """
    remote = raw.get("auto_map") or {}
    for auto, _ in HEADS:
        if auto in remote:
            return getattr(transformers, auto)
    heads = {auto: _classes(mapping, config) for auto, mapping in HEADS}
    heads = {auto: names for auto, names in heads.items() if names}
    said = str((getattr(config, "architectures", None) or [""])[0])
    for auto, names in heads.items():
        if said in names:
            return getattr(transformers, auto)
    if said in _classes("MODEL_FOR_TEXT_ENCODING_MAPPING", config):
        return getattr(transformers, said)
    pretraining = said in _classes("MODEL_FOR_PRETRAINING_MAPPING", config)
    if hasattr(transformers, said) and not pretraining:
        return transformers.AutoModel  # no head, or one that is not for language
    if getattr(config, "is_decoder", False) and not getattr(config, "is_encoder_decoder", False):
        heads = dict(reversed(heads.items()))  # an encoder's type turned into a decoder
    return getattr(transformers, next(iter(heads), "AutoModel"))


def _classes(mapping: str, config: PretrainedConfig) -> set[str]:
    """Names of the model classes that a mapping of transformers has for a configuration."""
    found = getattr(transformers, mapping, {}).get(type(config), None) or ()
    return {cls.__name__ for cls in (found if isinstance(found, tuple | list) else (found,))}


def _fetch_code_and_weights(
    spec: str, revision: str | None, folder: Path, trust_remote_code: bool
) -> None:
    """The second visit to the hub, once the configuration is known to be of use."""
    index = folder / "model.safetensors.index.json"
    names = sorted(set(weight_map(index, spec).values())) if index.exists() else []
    names = names or ["model.safetensors"]
    code = ("*.py",) if trust_remote_code else ()
    fetch(spec, revision, (*names, *code), needed=tuple(names))


def _exact(stored: set[str]) -> torch.dtype:
    """The narrowest usual dtype that holds every one of the ``stored`` dtypes exactly."""
    if "F64" in stored:
        return torch.float64
    if len(stored) == 1 and stored <= {"F16", "BF16"}:
        return FLOATS[next(iter(stored))]
    return torch.float32
