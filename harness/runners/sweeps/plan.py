"""Reads the TOML file of a sweep into its cells.

::

    models = ["reference:small", "my-model"]    # as --model; folders relative to this file
    dtypes = ["float32", "bfloat16"]            # default: ["auto"], as --dtype
    devices = ["cpu"]                           # default: ["cpu"]
    versions = ["here", "/envs/old/bin/python"] # default: ["here"], the Python that sweeps
    profile = "quick"
    seed = 0
    attention = "eager"                         # default: each model's own
    attends = "causal"                          # as --attends; default: what each model says
    device_map = "auto"                         # as --device-map; default: none
    expectations = "expected"                   # a folder; default: that of the claims
    evidence = "sweep.sqlite"                   # the default, next to this file
    retries = 2                                 # of a worker that is lost

    [select]                                    # default: all claims of Assay
    keyword = "cache"                           # pytest -k
    marker = "law"                              # pytest -m
    claims = ["claims/test_cache.py"]           # paths, relative to the clone

    [resources]                                 # what one cell takes
    cpu = 1                                     # processors, and torch's threads
    gpu = 0.5                                   # of a GPU, for cells on an accelerator
    memory = 4                                  # GB

Only ``models`` is required.  The whole file is checked before anything runs.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from assay.harness.checking.profiles import PROFILES
from assay.harness.results import toml
from assay.harness.results.errors import BadInput
from assay.harness.results.outputs import keep_apart
from assay.harness.results.specs import ModelSpec
from assay.harness.runners.environments import HERE
from assay.harness.runners.runner import Settings

DTYPES = ("float32", "bfloat16", "float16", "float64", "auto")
"""As in `harness.models.devices`, which would have to import torch."""

ATTENDS = ("causal", "both")
"""As in `harness.models.meant`, which would have to import transformers."""

LISTS = ("models", "dtypes", "devices", "versions", "claims")
TEXTS = (
    *("profile", "attention", "attends", "device_map", "expectations", "evidence"),
    *("keyword", "marker"),
)
WHOLE = ("seed", "retries")
NUMBERS = ("cpu", "gpu", "memory")
TABLES = {
    "": (*LISTS[:-1], *TEXTS[:-2], *WHOLE, "select", "resources"),
    "select": ("keyword", "marker", "claims"),
    "resources": NUMBERS,
}
"""The keys of each table of the file."""


@dataclass(frozen=True)
class Resources:
    """The resources of one cell: processors, GPUs or a part of one, and GB of memory."""

    cpu: float = 1.0
    gpu: float = 1.0
    memory: float = 0.0


@dataclass(frozen=True)
class SweepCell:
    """One run of claims: on one model, with one version, dtype and device."""

    model: str
    version: str
    settings: Settings

    @property
    def name(self) -> str:
        """A name that is unique within its sweep, for people."""
        version = () if self.version == HERE else (self.version,)
        settings = self.settings
        return " · ".join((self.model, str(settings.dtype), str(settings.device), *version))

    @property
    def key(self) -> str:
        """The same for files: 16 hex digits of a digest of the cell."""
        return hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()[:16]

    @property
    def on_accelerator(self) -> bool:
        """Whether it runs on a device other than the processor."""
        return str(self.settings.device).partition(":")[0] != "cpu"


@dataclass(frozen=True)
class Sweep:
    """All cells of a file, in its order, the file's folder, and how to run them."""

    folder: Path
    cells: tuple[SweepCell, ...]
    resources: Resources
    evidence: Path
    retries: int


def read(path: str | Path) -> Sweep:
    """The sweep that a file describes; raises `BadInput` with one line that names the key."""
    path = Path(path).absolute()
    content = toml.read(path)
    _check_table(f"{path}", "", content)
    select, resources = content.get("select", {}), content.get("resources", {})
    if "models" not in content:
        raise BadInput(f"{path}: models is missing; say which, such as ['reference:small']")
    profile = content.get("profile", "quick")
    _check_among(f"{path}: profile", [profile], PROFILES)
    dtypes = content.get("dtypes", ["auto"])
    _check_among(f"{path}: dtypes", dtypes, DTYPES)
    if "attends" in content:
        _check_among(f"{path}: attends", [content["attends"]], ATTENDS)
    expectations = content.get("expectations")
    folder = path.parent
    if expectations is not None:
        expectations = str(folder / expectations)
        if not Path(expectations).is_dir():
            raise BadInput(f"{path}: expectations: {expectations} is not a folder")
    options: dict[str, Any] = {
        k: content[k] for k in ("seed", "attention", "attends", "device_map") if k in content
    }
    options |= {k: select[k] for k in ("keyword", "marker") if k in select}
    paths = tuple(select.get("claims", ()))
    settings = Settings(profile=profile, paths=paths, expectations=expectations, **options)
    cells = [
        SweepCell(model, version, replace(settings, dtype=dtype, device=device))
        for version, model, dtype, device in product(
            [_seen_from(folder, version) for version in content.get("versions", [HERE])],
            content["models"],
            dtypes,
            content.get("devices", ["cpu"]),
        )
    ]
    evidence = folder / Path(content.get("evidence", "sweep.sqlite")).expanduser()
    if not evidence.name or evidence.is_dir():
        raise BadInput(f"{path}: evidence: {evidence} is a folder")
    names = {f"the model {name}": ModelSpec.recorded(name).path for name in content["models"]}
    folders = {name: Path(model) for name, model in names.items() if model}
    keep_apart({f"{path}: evidence": evidence}, folders)
    counts = {name: float(value) for name, value in resources.items()}
    return Sweep(
        folder,
        tuple(dict.fromkeys(cells)),
        Resources(**counts),
        evidence,
        content.get("retries", 2),
    )


def _seen_from(folder: Path, version: str) -> str:
    """A version that is a path (it has a separator) as an absolute path; others unchanged."""
    return str(folder / Path(version).expanduser()) if "/" in version else version


def _check_table(where: str, table: str, content: Mapping[str, Any]) -> None:
    for key, value in content.items():
        label = f"{table}.{key}" if table else key
        if key not in TABLES[table]:
            raise BadInput(f"{where}: unknown key {label!r}; {_near(key, table)}")
        if key in TABLES:
            if not isinstance(value, dict):
                raise BadInput(f"{where}: {label} is {value!r}, not a table; write [{key}]")
            _check_table(where, key, value)
        elif (wrong := _wrong(key, value)) is not None:
            raise BadInput(f"{where}: {label} is {value!r}, {wrong}")


def _near(key: str, table: str) -> str:
    """A suggestion for a misspelt key: of this table or of another."""
    if matches := difflib.get_close_matches(key, TABLES[table], 1):
        return f"is {matches[0]!r} meant?"
    for other, keys in TABLES.items():
        if matches := difflib.get_close_matches(key, keys, 1, 0.8):
            where = f"in [{other}]" if other else "outside of any table"
            return f"is {matches[0]!r} {where} meant?"
    return f"there are {', '.join(TABLES[table])}"


def _wrong(key: str, value: Any) -> str | None:
    """Why ``value`` is invalid for ``key``, or None."""
    if key in LISTS:
        if not isinstance(value, list) or not all(_is_text(each) for each in value):
            return "not a list of texts"
        return None if value else "empty; name one at least"
    if key in TEXTS:
        return None if _is_text(value) else "not a text"
    if key in WHOLE:
        fits = type(value) is int and 0 <= value < 2**63
        return None if fits else "not a whole number from 0 on"
    fits = type(value) in (int, float) and 0 <= value < math.inf and (value or key != "cpu")
    return None if fits else "not a number above 0"


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _check_among(where: str, values: Sequence[str], allowed: Collection[str]) -> None:
    for each in values:
        if each not in allowed:
            near = difflib.get_close_matches(each, list(allowed), 1)
            hint = f"is {near[0]!r} meant?" if near else f"there are {', '.join(allowed)}"
            raise BadInput(f"{where}: {each!r} is unknown; {hint}")
