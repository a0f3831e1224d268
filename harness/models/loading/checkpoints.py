"""Resolves a model's name to a folder, and checks that its files are complete.

Everything here is cheap: it reads configurations and the headers of safetensors files, but no
weights.  It never opens a pickle, and runs a repository's code only on request.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub import constants
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id
from transformers import CONFIG_MAPPING, AutoConfig, PretrainedConfig, PreTrainedModel

from assay.harness.models.capabilities import releases
from assay.harness.models.loading import scales, sizes, tensors
from assay.harness.models.loading.folders import (
    GGUF,
    INDEX,
    SINGLE,
    gguf_file,
    is_of_sentence_transformers,
    read_json,
    refuse_adapters,
    weight_map,
)
from assay.harness.models.loading.hub import SMALL, fetch
from assay.harness.models.loading.remote_code import (
    refuse_code_of_the_hub,
    refuse_generation_code,
    refuse_remote_code,
)
from assay.harness.models.loading.tensors import Stored
from assay.harness.models.loading.weight_dtypes import (
    check_quantisation,
    refuse_integers,
)
from assay.harness.models.machine.shortage import ENDS
from assay.harness.models.subject.configuration import LEAST_TOKENS
from assay.harness.results.errors import BadInput, NotHere, brief, listed, shortened
from assay.harness.results.quiet import quiet

CAUSAL = "AutoModelForCausalLM"

HEADS = (
    ("AutoModelForSeq2SeqLM", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING"),
    ("AutoModelForMaskedLM", "MODEL_FOR_MASKED_LM_MAPPING"),
    (CAUSAL, "MODEL_FOR_CAUSAL_LM_MAPPING"),
    ("AutoModelForImageTextToText", "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING"),
    ("AutoModelForMultimodalLM", "MODEL_FOR_MULTIMODAL_LM_MAPPING"),
)
"""Transformers' auto classes for language models with a head, and the mappings of their types.

Those that also read images or sound come last: a type without `architectures` is a text model.
"""


@dataclass(frozen=True)
class Checkpoint:
    """A model folder that has passed every check short of loading it.

    ``name`` is the requested one, and ``folder`` its location.  ``auto`` is the auto class of
    transformers that loads it.  Its files contain the ``stored`` tensors.
    ``dtype`` is its own, as ``dtype="auto"`` of transformers: the configuration's, or that of the
    first tensor.  Its weights may be ``quantised``, as config.json says.  ``gguf`` is the name of
    a GGUF file that is loaded in place of all others.
    """

    name: str
    folder: Path
    auto: type[Any]
    stored: Stored
    dtype: torch.dtype
    quantised: bool = False
    trust_remote_code: bool = False
    gguf: str | None = None

    def bytes_at(self, dtype: torch.dtype) -> int:
        """Memory that the weights take in ``dtype``."""
        return self.stored.floats * dtype.itemsize + self.stored.other_bytes


def inspect_checkpoint(
    spec: str, *, revision: str | None = None, trust_remote_code: bool = False
) -> Checkpoint:
    """Find the model that ``spec`` names and check its files without loading its weights.

    ``spec`` is a folder in the layout of ``save_pretrained``, a folder in the layout of the
    hub's cache, a GGUF file or the folder of one, or a hub id, which alone may use the network.
    Raises `BadInput`.
    """
    folder, hub = _locate(spec, revision)
    if not hub and (gguf := gguf_file(folder, spec)) is not None:
        return _inspect_gguf(gguf, spec)
    refuse_adapters(folder, spec)
    raw = _read_configuration(folder, spec)
    if not trust_remote_code:
        refuse_generation_code(folder, spec)
        refuse_remote_code(raw, "config.json", spec)
        refuse_code_of_the_hub(raw, spec)
    check_quantisation(raw, spec, trust_remote_code)
    config = _configuration(raw, folder, spec, trust_remote_code)
    refuse_short_context(config, spec)
    try:
        auto = _auto_class(config, raw if trust_remote_code else {})
        if is_of_sentence_transformers(folder):
            auto = transformers.AutoModel
    except ENDS as error:  # a model's module may need packages that are not installed
        raise BadInput(f"{spec}: its class cannot be imported ({brief(error)})") from error
    if hub:
        _fetch_code_and_weights(spec, revision, folder, trust_remote_code)
    stored = tensors.inspect(folder, spec, raw.get("transformers_weights"))
    if (settings := folder / "generation_config.json").exists():
        read_json(settings, spec)  # transformers goes on without it
    if not (trust_remote_code and raw.get("auto_map")):  # no code of the repository's own
        with quiet():
            parameters = sizes.check(raw, auto, stored, spec)
        refuse_integers(raw, stored, parameters, spec)
    quantised = raw.get("quantization_config") is not None
    if quantised:
        scales.refuse_lost(raw["quantization_config"], stored, spec)
    dtype = releases.configured_dtype(config) or stored.first
    return Checkpoint(spec, folder, auto, stored, dtype, quantised, trust_remote_code)


def _inspect_gguf(path: Path, spec: str) -> Checkpoint:
    """The checkpoint in a GGUF file, which has configuration, weights and tokenizer."""
    refuse_adapters(path.parent, spec)  # transformers would load one from there
    stored = tensors.inspect(path, spec)
    try:
        with quiet():
            raw, _ = PretrainedConfig.get_config_dict(
                path.parent, gguf_file=path.name, local_files_only=True
            )
    except ENDS as error:  # any error of the library's
        raise BadInput(
            f"{spec}: transformers {transformers.__version__} cannot read {path.name} "
            f"({brief(error)})"
        ) from error
    config = _configuration(raw, path.parent, spec, False)
    refuse_short_context(config, spec)
    auto = _auto_class(config, {})
    with quiet():
        sizes.check(raw, auto, stored, spec)
    return Checkpoint(spec, path.parent, auto, stored, torch.float32, gguf=path.name)


def refuse_short_context(config: PretrainedConfig, spec: str) -> None:
    """Raise `BadInput` unless prompts of `LEAST_TOKENS` tokens fit."""
    context = getattr(config, "max_position_embeddings", None)
    if context is not None and 0 <= context < LEAST_TOKENS:  # some types without a limit say -1
        raise BadInput(
            f"{spec}: has a context of {context}; at least {LEAST_TOKENS} positions are needed"
        )


def _locate(spec: str, revision: str | None) -> tuple[Path, bool]:
    """The folder, or the GGUF file, that ``spec`` names, and whether it is the hub's."""
    path = os.path.expanduser(spec)
    if spec.strip() and os.path.isdir(path):
        return _local(Path(path), spec, revision), False
    if path.endswith(GGUF) and os.path.exists(path):
        if revision is not None:
            raise BadInput(f"{spec}: is a file and has no revision {revision!r}")
        return Path(path), False
    if os.path.exists(path):
        raise BadInput(f"{spec}: is a file; give the folder that holds the model")
    try:
        validate_repo_id(spec)
    except HFValidationError:
        raise BadInput(f"{spec!r}: no such folder") from None
    return fetch(spec, revision, SMALL, needed=("config.json",)), True


def _local(folder: Path, spec: str, revision: str | None) -> Path:
    """``folder`` itself, or the snapshot of ``revision`` in it if it is the hub's cache of one."""
    snapshots = folder / "snapshots"
    if not snapshots.is_dir() or (folder / "config.json").exists():
        if revision is not None:
            raise BadInput(f"{spec}: is a plain folder and has no revision {revision!r}")
        return folder
    name = revision or constants.DEFAULT_REVISION
    reference = folder / "refs" / name
    commit = reference.read_text().strip() if reference.is_file() else name
    commits = sorted(path.name for path in snapshots.iterdir() if path.is_dir())
    if commit not in commits and revision is None and len(commits) == 1:
        commit = commits[0]
    if commit not in commits:
        raise BadInput(f"{spec}: holds no revision {name!r} but {listed(commits) or 'none'}")
    return snapshots / commit


def _read_configuration(folder: Path, spec: str) -> dict[str, Any]:
    """The content of config.json, or of the file that it names for this transformers version."""
    names = read_json(folder / "config.json", spec).get("configuration_files") or []
    for name in names if isinstance(names, list) else [names]:
        if not isinstance(name, str) or Path(name).name != name:
            message = f"config.json names {name!r}, which is not a file of this folder"
            raise BadInput(f"{spec}: {message}")
        read_json(folder / name, spec)
    try:
        return PretrainedConfig.get_config_dict(folder, local_files_only=True)[0]
    except ENDS as error:  # any error of the library's
        raise BadInput(f"{spec}: config.json cannot be used ({brief(error)})") from error


def _configuration(
    raw: dict[str, Any], folder: Path, spec: str, trust_remote_code: bool
) -> PretrainedConfig:
    """The configuration in config.json, its numbers bounded while the weights are unread."""
    kind = raw.get("model_type")
    custom = trust_remote_code and "AutoConfig" in (raw.get("auto_map") or {})
    if not isinstance(kind, str) or not kind:
        raise BadInput(
            f"{spec}: config.json names no model_type, so it is not a model of transformers"
        )
    if kind not in CONFIG_MAPPING and not custom:
        raise NotHere(
            f"{spec}: the model type {shortened(kind, 100)!r} is unknown to transformers "
            f"{transformers.__version__}; another version may know it"
        )
    if not custom:
        return sizes.configuration(raw, spec)
    try:
        return AutoConfig.from_pretrained(folder, trust_remote_code=True)
    except ENDS as error:  # whatever a model's own configuration class raises
        raise BadInput(
            f"{spec}: config.json, or the code that it names, cannot be used ({brief(error)})"
        ) from error


def _auto_class(config: PretrainedConfig, raw: dict[str, Any]) -> type[Any]:
    """The auto class for the model's head, or `AutoModel` if it has none for language.

    Looks up the checkpoint's ``architectures`` in transformers' own mappings; a checkpoint without
    them gets the head of its type.  An encoder that is a part of its type's body, such as
    T5EncoderModel, is its own class.
    """
    remote = raw.get("auto_map") or {}
    for auto, _ in HEADS:
        if auto in remote:
            return getattr(transformers, auto)
    heads = {auto: _classes(mapping, config) for auto, mapping in HEADS}
    heads = {auto: names for auto, names in heads.items() if names}
    architecture = str((getattr(config, "architectures", None) or [""])[0])
    for auto, names in heads.items():
        if architecture in names:
            return getattr(transformers, auto)
    if architecture in _classes("MODEL_FOR_TEXT_ENCODING_MAPPING", config):
        return getattr(transformers, architecture)
    pretraining = architecture in _classes("MODEL_FOR_PRETRAINING_MAPPING", config)
    if hasattr(transformers, architecture) and not pretraining:
        return transformers.AutoModel  # no head, or one that is not for language
    decodes = getattr(config, "is_decoder", False)
    if decodes and not getattr(config, "is_encoder_decoder", False) and CAUSAL in heads:
        return getattr(transformers, CAUSAL)  # an encoder's type turned into a decoder
    return getattr(transformers, next(iter(heads), "AutoModel"))


def class_to_load(model: PreTrainedModel, folder: str) -> type[Any]:
    """The class by which users load ``model``, saved in ``folder``: the auto class that gives the
    model's own class, or that class itself where none does (a part of a larger model).

    A type without classes of its own may be loaded wrongly by the class that it borrows.
    """
    own = type(model)
    try:
        config = AutoConfig.from_pretrained(folder)
    except (ValueError, KeyError):  # a type that the auto classes do not know
        return own
    for auto, mapping in (*HEADS, ("AutoModel", "MODEL_MAPPING")):
        named = own.__name__ in _classes(mapping, config)
        if named and getattr(transformers, own.__name__, None) is own:
            return getattr(transformers, auto)
    return own


def _classes(mapping: str, config: PretrainedConfig) -> set[str]:
    """Names of the model classes in a mapping of transformers for a configuration."""
    classes = getattr(transformers, mapping, {}).get(type(config), None) or ()
    return {cls.__name__ for cls in (classes if isinstance(classes, tuple | list) else (classes,))}


def _fetch_code_and_weights(
    spec: str, revision: str | None, folder: Path, trust_remote_code: bool
) -> None:
    """Fetch code and weights from the hub, once the configuration has been checked."""
    index = folder / INDEX
    names = sorted(set(weight_map(index, spec).values())) if index.exists() else [SINGLE]
    code = ("*.py",) if trust_remote_code else ()
    fetch(spec, revision, (*names, *code), needed=tuple(names))
