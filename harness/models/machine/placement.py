"""Spreads models too large for one device over several, through accelerate.

A device map is one of accelerate's names (`NAMED`) or a JSON file such as ::

    {"model.embed_tokens": "cpu", "model.layers.0": "cuda:0", "model.layers.1": "disk", …}

A module that is not stored where it computes is offloaded: its parameters are on torch's meta
device between two passes, and are moved to the device for each pass.  A pass, and the gradient of
the embeddings, then equal those of a plain load; so does a copy in float64.  Code that reads
weights itself needs them in memory: embeddings, which `check` rejects elsewhere, and modified
copies that read or redraw the blocks' weights, for which the capability ``weights-in-memory`` is
missing.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib.util
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from assay.harness.models.machine.quantised_weights import parts
from assay.harness.models.machine.weights import offloaded
from assay.harness.results.errors import BadInput

NAMED = ("auto", "balanced", "balanced_low_0", "sequential")
"""Maps that accelerate derives from the free memory."""


@dataclass(frozen=True)
class Placement:
    """A device map: the ``option`` that names it, and its content."""

    option: str
    map: str | dict[str, str | int]

    def arguments(self, device: torch.device) -> dict[str, Any]:
        """The options of `from_pretrained`; on a CPU, a named map leaves out the GPUs."""
        # The folder lasts as long as the process: copies of the model also read from it.
        folder = tempfile.mkdtemp(prefix="assay-offload-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        options: dict[str, Any] = {"device_map": self.map, "offload_folder": folder}
        if isinstance(self.map, str) and device.type == "cpu":
            options["max_memory"] = {"cpu": psutil.virtual_memory().available}
        return options


def read(option: str) -> Placement:
    """The placement that ``--device-map`` names; raises `BadInput`."""
    where = f"--device-map {option}"
    if importlib.util.find_spec("accelerate") is None:
        raise BadInput(f"{where}: accelerate is not installed; pip install -e '.[offload]'")
    if option in NAMED:
        return Placement(option, option)
    path = Path(option).expanduser()
    if not os.path.isfile(path):
        raise BadInput(f"{where}: is not a file, and none of {', '.join(NAMED)}")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{where}: is not JSON ({error})") from error
    if not isinstance(content, dict) or not content:
        raise BadInput(f"{where}: is not a JSON object that maps modules to devices")
    for module, place in content.items():
        if not _is_place(place):
            raise BadInput(f"{where}: {module!r} is put on {place!r}, which is not a device")
    return Placement(option, content)


def describe(option: str) -> str:
    """A device map for the evidence: its name, or the file's with eight digits of its digest."""
    if option in NAMED:
        return option
    return f"{option} ({hashlib.sha256(Path(option).expanduser().read_bytes()).hexdigest()[:8]})"


def _is_place(place: object) -> bool:
    if place == "disk" or (type(place) is int and place >= 0):
        return True
    if not isinstance(place, str):
        return False
    try:
        return torch.device(place).type != "meta"
    except RuntimeError:
        return False


def tensors(model: PreTrainedModel, named: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """The ``named`` tensors of a model, by order of names; reads offloaded ones one by one.

    Of quantised ones, those that they are made of; of another kind of state, nothing.
    """
    for name, tensor in sorted(named.items()):
        if not isinstance(tensor, Tensor):
            continue
        module, _, attribute = name.rpartition(".")
        if not tensor.is_meta:
            yield from parts(name, tensor)
            continue
        with _read_in(model.get_submodule(module)):
            yield name, getattr(model.get_submodule(module), attribute, tensor)


def refuse_without_numbers(name: str, model: PreTrainedModel) -> None:
    """Raise `BadInput` where a parameter is on torch's meta device and nothing reads it in."""
    for key, parameter in model.named_parameters():
        owner = model.get_submodule(key.rpartition(".")[0])
        if parameter.is_meta and not hasattr(owner, "_hf_hook"):
            raise BadInput(f"{name}: {key} is on the meta device, without numbers; load it")


def _read_in(module: nn.Module) -> Any:
    from accelerate.utils import align_module_device

    return align_module_device(module, "cpu")


def check(name: str, model: PreTrainedModel, placement: Placement, device: torch.device) -> None:
    """Reject a map with unknown modules, and one that offloads embeddings.

    The input embedding must be on the run's ``device``, where prompts begin.
    """
    where = f"{name}: --device-map {placement.option}"
    if isinstance(placement.map, dict):
        modules = {module for module, _ in model.named_modules()}
        modules |= {name for name, _ in model.named_parameters()}
        if strange := sorted(placement.map.keys() - modules):
            raise BadInput(f"{where}: the model has no {strange[0]}")
        for parameter, _ in model.named_parameters():
            if not any(f"{parameter}.".startswith(f"{m}.") or not m for m in placement.map):
                raise BadInput(f"{where}: names no device for {parameter}")
    away = set(offloaded(model))
    tables = [f"{n}.weight" for n, m in model.named_modules() if isinstance(m, nn.Embedding)]
    head = model.get_output_embeddings()
    tables += [f"{n}.weight" for n, m in model.named_modules() if m is head]
    if out := [table for table in tables if table in away]:
        raise BadInput(f"{where}: {out[0]} is offloaded, and claims read it; put it on {device}")
    weight: Any = model.get_input_embeddings()
    if weight.weight.device.type != device.type:
        home = weight.weight.device
        raise BadInput(f"{where}: the embedding lies on {home}; give --device {home.type}")
