"""Checkpoints: from what was asked for to a folder whose files are whole, before a weight is read.

Everything here is cheap: configurations and the headers of safetensors files are read, weights
are not.  No pickle is ever opened, and no code of a repository is run unless it is asked for.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub import HfApi, constants, snapshot_download, try_to_load_from_cache
from huggingface_hub.errors import (
    GatedRepoError,
    HFValidationError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import validate_repo_id
from safetensors import SafetensorError, safe_open
from transformers import CONFIG_MAPPING, AutoConfig, PretrainedConfig

from harness.errors import BadInput, NotHere
from harness.foreign import refuse_generation_code, refuse_weights_elsewhere

SMALL = ("*.json", "*.txt", "*.model", "*.jinja", "*.tiktoken")
"""What is fetched of a hub repository beside its weights: configuration and tokenizer."""

PICKLES = ("pytorch_model*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
HUB_TIMEOUT = 10.0
"""Seconds that the hub has for its first answer."""

LONGEST_HEADER = 100_000_000
"""Bytes; the safetensors format allows no longer one."""

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


IMPLEMENTATION = re.compile(r"[a-z0-9_|]+")
"""What names a way of computing that transformers has itself."""

MALFORMED = (ValueError, TypeError, AttributeError, LookupError, RecursionError)
"""What a header raises that is not as it should be."""


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
    weights = _weight_files(folder, raw, spec)
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


def listed(names: list[str], most: int = 3) -> str:
    """The first ``most`` names in quotes, and how many more there are."""
    shown = ", ".join(repr(name) for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def brief(error: BaseException, most: int = 200) -> str:
    """Someone else's exception in at most ``most`` printable characters of one line."""
    text = " ".join(str(error).split()) or "no message"
    text = "".join(character if character.isprintable() else "?" for character in text)
    text = text if len(text) <= most else text[: most - 1] + "…"
    return f"{type(error).__name__}: {text}"


def read_json(path: Path, spec: str) -> dict[str, Any]:
    """The object in a JSON file of the model ``spec``; raises `BadInput`."""
    _refuse_pipes(path, spec)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput(f"{spec}: holds no model, there is no {path.name} in it") from None
    except OSError as error:
        raise BadInput(f"{spec}: {path.name} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{spec}: {path.name} is not valid JSON ({brief(error, 80)})") from error
    if not isinstance(content, dict):
        raise BadInput(f"{spec}: {path.name} holds no JSON object but a {type(content).__name__}")
    return content


def _refuse_pipes(path: Path, spec: str) -> None:
    """Only files are read: a pipe would be waited for, and a device has no end."""
    if os.path.exists(path) and not os.path.isfile(path):
        raise BadInput(f"{spec}: {path.name} is no regular file")


def refuse_remote_code(content: dict[str, Any], file: str, spec: str) -> None:
    """Raise `BadInput` if the configuration in ``file`` names code that comes with the model."""
    if wanted := content.get("auto_map"):
        named = sorted(wanted.values(), key=str) if isinstance(wanted, dict) else [wanted]
        raise BadInput(
            f"{spec}: wants to run code of its own ({file} names {listed(named)}); "
            "read that code and pass --trust-remote-code to run it"
        )


def refuse_code_of_the_hub(content: Any, spec: str) -> None:
    """Raise `BadInput` if config.json, or a part of it, names code or weights of the hub.

    An attention implementation with a slash in its name is a kernel that transformers fetches
    and runs; a pretrained backbone is another model that it loads.
    """
    for key, value in _entries(content):
        names = value.values() if isinstance(value, dict) else [value]
        if key.strip("_").removesuffix("_internal").endswith("implementation"):
            for name in names:
                if isinstance(name, str) and not IMPLEMENTATION.fullmatch(name):
                    raise BadInput(
                        f"{spec}: wants to run code of the hub (config.json names {name!r} as "
                        f"{key}); read that code and pass --trust-remote-code to run it"
                    )
        if key == "use_pretrained_backbone" and value:
            raise BadInput(
                f"{spec}: wants to load another model (config.json sets {key}); "
                "pass --trust-remote-code to let it"
            )


def _entries(content: Any) -> Iterator[tuple[str, Any]]:
    """Every key and value of nested objects and arrays."""
    waiting = [content]
    while waiting:
        here = waiting.pop()
        if isinstance(here, dict):
            yield from here.items()
            waiting += here.values()
        elif isinstance(here, list):
            waiting += here


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
    return _fetch(spec, revision, SMALL, needed=("config.json",)), True


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


def _fetch(
    spec: str, revision: str | None, patterns: tuple[str, ...], needed: tuple[str, ...] = ()
) -> Path:
    """Bring files of a hub repository into the hub's cache and return their folder.

    Without an answer of the hub (no network, ``HF_HUB_OFFLINE``) what the cache has is used, if
    it has all that is ``needed``.
    """
    deeper = tuple(f"*/{pattern}" for pattern in SMALL)
    try:
        # Asked first because this question has a time limit in every version of the library.
        HfApi().model_info(spec, revision=revision, timeout=HUB_TIMEOUT)
        folder = snapshot_download(
            spec, revision=revision, allow_patterns=list(patterns), ignore_patterns=list(deeper)
        )
        return Path(folder)
    except Exception as error:  # the hub's library lets through those of its transport
        cached = try_to_load_from_cache(spec, "config.json", revision=revision)
        full = isinstance(error, OSError) and error.errno == errno.ENOSPC
        if isinstance(cached, str) and not full:
            snapshot = Path(cached).parent
            if all((snapshot / name).exists() for name in needed):
                return snapshot
        raise BadInput(f"{spec}: {_why_not_fetched(error, revision)}") from error


def _why_not_fetched(error: Exception, revision: str | None) -> str:
    no_folder = "there is no such folder"
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"the disk is full ({constants.HF_HUB_CACHE})"
    if isinstance(error, GatedRepoError):
        return "the hub gives it only to those who have asked for access; run `hf auth login`"
    if isinstance(error, RevisionNotFoundError):
        return f"the hub has no revision {revision!r} of it"
    if isinstance(error, RepositoryNotFoundError):
        return f"{no_folder} and the hub has no such model, or it is private"
    held = f"and the hub's cache ({constants.HF_HUB_CACHE}) does not hold"
    held += " it whole" if revision is None else f" its revision {revision!r} whole"
    if constants.HF_HUB_OFFLINE:
        return f"{no_folder}, HF_HUB_OFFLINE is set {held}"
    return f"{no_folder}, the hub does not answer {held} ({brief(error, 80)})"


def _fetch_code_and_weights(
    spec: str, revision: str | None, folder: Path, trust_remote_code: bool
) -> None:
    """The second visit to the hub, once the configuration is known to be of use."""
    index = folder / "model.safetensors.index.json"
    names = sorted(set(_weight_map(index, spec).values())) if index.exists() else []
    names = names or ["model.safetensors"]
    code = ("*.py",) if trust_remote_code else ()
    _fetch(spec, revision, (*names, *code), needed=tuple(names))


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


def _weight_files(folder: Path, raw: dict[str, Any], spec: str) -> dict[Path, set[str]]:
    """The safetensors files to load, in transformers' order, with the tensors promised in each."""
    chosen = raw.get("transformers_weights")
    single = folder / "model.safetensors"
    index = folder / "model.safetensors.index.json"
    if isinstance(chosen, str):
        refuse_weights_elsewhere(chosen, spec)
        if chosen.endswith(".json"):
            index = folder / chosen
        else:
            single = folder / chosen
    if single.is_file() and index.name != chosen:
        return {single: set()}
    if not index.is_file():
        pickles = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
        if pickles:
            raise BadInput(
                f"{spec}: its weights are pickled ({listed(pickles, 1)}), and opening a pickle "
                "can run any code; convert it to safetensors with save_pretrained"
            )
        raise BadInput(
            f"{spec}: holds no weights in safetensors: no {single.name} and no {index.name}"
        )
    files: dict[Path, set[str]] = {}
    for tensor, name in _weight_map(index, spec).items():
        files.setdefault(folder / name, set()).add(tensor)
    if absent := sorted(path.name for path in files if not path.is_file()):
        raise BadInput(f"{spec}: {index.name} names {listed(absent)}, which is not there")
    return files


def _weight_map(index: Path, spec: str) -> dict[str, str]:
    """Which file holds which tensor, from a sharded checkpoint's index."""
    found = read_json(index, spec).get("weight_map")
    if not isinstance(found, dict) or not found:
        raise BadInput(f"{spec}: {index.name} has no weight_map, so its shards are not known")
    for name in found.values():
        if not isinstance(name, str) or Path(name).name != name:
            raise BadInput(f"{spec}: {index.name} names {name!r}, which is no file beside it")
    return found


def read_header(path: Path, spec: str) -> dict[str, dict[str, Any]]:
    """The tensors that a safetensors file of ``spec`` says it holds; raises `BadInput`.

    The file's length is compared with what its header promises, and the library's own checks
    (offsets, shapes, dtypes) are run; no tensor is read.
    """
    _refuse_pipes(path, spec)
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(8)
            length = int.from_bytes(start, "little")
            if start == b"version ":
                raise BadInput(f"{spec}: {path.name} is a Git LFS pointer; run `git lfs pull`")
            if size < 8 or length > min(size - 8, LONGEST_HEADER):
                raise BadInput(
                    f"{spec}: {path.name} is truncated or corrupt: {size} bytes are too few for "
                    "its header; copy or download it again"
                )
            header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        promised = 8 + length + max((e["data_offsets"][1] for e in header.values()), default=0)
        if promised > size:
            raise BadInput(
                f"{spec}: {path.name} is truncated: {size} of {promised} bytes are there; "
                "copy or download it again"
            )
        with safe_open(path, framework="np") as opened:  # "pt" would set memory aside for it
            opened.keys()
    except OSError as error:
        raise BadInput(f"{spec}: {path.name} cannot be read: {brief(error, 80)}") from error
    except (*MALFORMED, SafetensorError) as error:
        raise BadInput(
            f"{spec}: {path.name} has a corrupt header ({brief(error, 80)}); "
            "copy or download it again"
        ) from error
    return header


def _exact(stored: set[str]) -> torch.dtype:
    """The narrowest usual dtype that holds every one of the ``stored`` dtypes exactly."""
    if "F64" in stored:
        return torch.float64
    if len(stored) == 1 and stored <= {"F16", "BF16"}:
        return FLOATS[next(iter(stored))]
    return torch.float32
