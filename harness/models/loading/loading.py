"""Loads models from checkpoints or adopts them from memory, checked and ready to run.

Unusable models are rejected with a one-line `BadInput` before anything is measured.
"""

from __future__ import annotations

import io
import os
import re
import tempfile
from contextlib import AbstractContextManager, nullcontext, redirect_stderr, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from assay.harness.models.capabilities import releases
from assay.harness.models.loading import adapters, digests, tensors, tokenizers
from assay.harness.models.loading.checkpoints import (
    Checkpoint,
    inspect_checkpoint,
    refuse_short_context,
)
from assay.harness.models.machine import accelerators, allocation, quantised_weights, weights
from assay.harness.models.machine import placement as placing
from assay.harness.models.machine.devices import (
    DTYPES,
    check_pair,
    own_dtype,
    parse_device,
    parse_dtype,
)
from assay.harness.models.machine.placement import Placement
from assay.harness.models.machine.shortage import ENDS, MEMORY, shortage
from assay.harness.models.subject import Subject, compat, experts
from assay.harness.models.subject.wrapped import Wrapped
from assay.harness.results.errors import BadInput, Missing, brief, listed
from assay.harness.results.quiet import quiet

__all__ = [
    "DTYPES",
    "Checkpoint",
    "Loaded",
    "adopt",
    "check_pair",
    "inspect_checkpoint",
    "load",
    "parse_device",
    "parse_dtype",
]


@dataclass(frozen=True)
class Loaded:
    """A model that can be measured: frozen, in evaluation mode, on its device in its dtype.

    ``name`` is the requested one; ``digest`` identifies the weights and configuration (see
    `harness.models.loading.digests`), whatever dtype they were cast to afterwards.  ``folder``
    holds its safetensors, or those of its adapter, or is its GGUF file; None where it comes from
    elsewhere.
    """

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase | None
    digest: str
    folder: Path | None = None

    @property
    def subject(self) -> Subject:
        """The model as one that claims examine."""
        own = self.name, self.model, self.tokenizer, self.digest
        return Subject(*own, folder=self.folder)


def load(
    spec: str,
    *,
    revision: str | None = None,
    dtype: torch.dtype | None,
    device: torch.device,
    attention: str | None = None,
    trust_remote_code: bool = False,
    placement: Placement | None = None,
    base: str | None = None,
) -> Loaded:
    """Load the model that ``spec`` names (see `inspect_checkpoint`) with its tokenizer.

    A ``dtype`` of None is the checkpoint's own.
    ``attention`` is an implementation that transformers has for the model (``eager``,
    ``sdpa``, …), None its default.  The digest is of the weights as stored: for a lossy cast the
    model is loaded twice, first exactly.  A ``placement`` distributes the model over devices and
    possibly a disk.  ``base`` is the model of an adapter's folder, by default the folder that the
    adapter names.  Raises `BadInput`.
    """
    if dtype is not None:
        check_pair(device, dtype)
    _check_attention_name(spec, attention)
    if (adapter := adapters.read(spec, base)) is not None:
        loaded = load(
            adapter.base,
            revision=revision,
            dtype=dtype,
            device=device,
            attention=attention,
            trust_remote_code=trust_remote_code,
            placement=placement,
        )
        model = adapters.applied(adapter, loaded.model, spec)
        own = Loaded(
            spec, model, loaded.tokenizer, digests.digest(model), Path(os.path.expanduser(spec))
        )
        return _ready(own, device)
    with quiet(), tensors.gguf_read_once(spec):
        checkpoint = inspect_checkpoint(
            spec, revision=revision, trust_remote_code=trust_remote_code
        )
        if dtype is None:
            check_pair(device, dtype := own_dtype(spec, checkpoint.dtype))
        if checkpoint.quantised and dtype == torch.float64:
            raise BadInput(f"{spec}: its weights are quantised: nothing computes so in float64")
        exactly = checkpoint.quantised or _holds(dtype, checkpoint.stored.exact)
        first = dtype if exactly else checkpoint.stored.exact
        if placement is None:
            _check_memory(checkpoint, max(first, dtype, key=lambda kind: kind.itemsize), "cpu")
            if accelerators.total(device) is not None:
                _check_memory(checkpoint, dtype, device)
        placed = {} if placement is None else placement.arguments(device)
        if checkpoint.quantised and placement is None:
            placed = quantised_weights.placed_on(device)
        tokenizer = tokenizers.load(checkpoint)
        model = _from_pretrained(checkpoint, first, attention, placed)
        if placement is not None:
            placing.check(spec, model, placement, device)
        _check_finite(spec, model)
        digest = digests.digest(model)
        if not exactly:
            del model
            model = _from_pretrained(checkpoint, dtype, attention, placed)
            _check_finite(spec, model, f" in {dtype}, whose range is too small for it")
        folder = checkpoint.folder / (checkpoint.gguf or "")
        return _ready(Loaded(spec, model, tokenizer, digest, folder), device)


def _holds(dtype: torch.dtype, stored: torch.dtype) -> bool:
    """Whether ``dtype`` has every number of ``stored``."""
    return torch.promote_types(stored, dtype) == dtype


def adopt(
    name: str,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    *,
    dtype: torch.dtype,
    device: torch.device,
    attention: str | None = None,
) -> Loaded:
    """Prepare a model from memory, with the checks and the digest of a loaded one.

    It moves and freezes the model itself.  For another dtype it saves and reloads the model, since
    transformers decides on loading which tensors not to cast (frequencies of rotary positions,
    and some weights in float16).  Raises `BadInput`.
    """
    check_pair(device, dtype)
    _check_attention_name(name, attention)
    refuse_short_context(model.config, name)
    placing.refuse_without_numbers(name, model)
    _check_finite(name, model)
    digest = digests.digest(model)
    with quiet():
        if weights.is_quantised(model):
            dtype = model.dtype  # a cast would change more than the dtype
        if dtype != model.dtype and isinstance(model, Wrapped):
            model.to(dtype=dtype)  # type: ignore[call-arg]
        elif dtype != model.dtype:
            with tempfile.TemporaryDirectory() as folder:
                model.save_pretrained(folder)
                model = type(model).from_pretrained(folder, **compat.in_dtype(dtype)).eval()
        _set_attention(name, model, attention)
        _check_finite(name, model, f" in {dtype}, whose range is too small for it")
        return _ready(Loaded(name, model, tokenizer, digest), device)


def _from_pretrained(
    checkpoint: Checkpoint, dtype: torch.dtype, attention: str | None, placed: dict[str, Any]
) -> PreTrainedModel:
    """The model on the CPU, or where it is placed; the only call that loads with transformers."""
    options: dict[str, Any] = compat.in_dtype(dtype) | placed
    if attention is not None:
        options["attn_implementation"] = attention
    bars: AbstractContextManager[Any] = nullcontext()
    if checkpoint.gguf is not None:
        options |= releases.from_gguf(checkpoint.gguf)
        bars = redirect_stderr(io.StringIO())  # nothing else keeps theirs quiet
    try:
        with bars:
            model, info = checkpoint.auto.from_pretrained(
                checkpoint.folder,
                use_safetensors=True,
                local_files_only=not checkpoint.trust_remote_code,
                trust_remote_code=checkpoint.trust_remote_code,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # `_check_keys` reports them
                **options,
            )
    except ENDS as error:  # whatever a model's own code raises
        if attention is not None and "attention" in str(error).lower():
            raise _no_such_attention(checkpoint.name, attention, error) from error
        if (lacking := shortage(error)) == MEMORY:
            raise BadInput(f"{checkpoint.name}: too little memory ({brief(error)})") from error
        raise BadInput(
            f"{checkpoint.name}: cannot be loaded ({lacking or brief(error)})"
        ) from error
    _check_keys(checkpoint.name, model, info)
    quantised_weights.unpack(model)
    return model


def _check_keys(spec: str, model: PreTrainedModel, info: dict[str, Any]) -> None:
    """Reject weights that do not fill the model, or for which it has no parameters.

    Left-over tensors are fine if they are another task's head or a buffer that older versions
    saved.  They are not if they would extend a module of the model: a layer beyond the
    configuration's number, any layer where it has none, a bias that it leaves out.  Layers that
    predict further tokens, for drafts, are beyond that number by design.
    """
    if wrong := sorted(info["mismatched_keys"]):
        key, shape, expected = wrong[0]
        raise BadInput(
            f"{spec}: {key} is of shape {list(shape)} and config.json asks for {list(expected)}"
            + (f" ({len(wrong)} tensors do not fit)" if len(wrong) > 1 else "")
        )
    if missing := sorted(info["missing_keys"]):
        raise BadInput(
            f"{spec}: its weights lack {listed(missing)} of the {type(model).__name__} that "
            "config.json describes; they would be drawn at random"
        )
    prefix = f"{model.base_model_prefix}."
    owners = {_owner(name, prefix) for name, _ in model.named_parameters()}
    empty = tuple(
        f"{name.removeprefix(prefix)}."
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and not len(module)
    )
    drafting = _drafting_layers(model.config.get_text_config())
    beyond = [
        key
        for key in sorted(info["unexpected_keys"])
        if _layer(key) not in drafting
        and (_owner(key, prefix) in owners or key.removeprefix(prefix).startswith(empty))
    ]
    if beyond:
        raise BadInput(
            f"{spec}: the {type(model).__name__} that config.json describes has no parameters for "
            f"{listed(beyond)}; config.json and the weights are of different models"
        )
    if info.get("error_msgs"):
        raise BadInput(f"{spec}: cannot be loaded ({' '.join(str(info['error_msgs']).split())})")


def _drafting_layers(config: Any) -> range:
    """The numbers of the layers that predict further tokens: right after the model's own."""
    own = getattr(config, "num_hidden_layers", None) or 0
    return range(own, own + (getattr(config, "num_nextn_predict_layers", None) or 0))


def _layer(name: str) -> int | None:
    """The number of a tensor's layer: the first in its name."""
    number = re.search(r"\.(\d+)\.", name)
    return int(number[1]) if number else None


def _owner(name: str, prefix: str) -> str:
    """The module of a tensor, without layer numbers: ``h.#.ln_1``."""
    return re.sub(r"\d+", "#", name.removeprefix(prefix)).rpartition(".")[0]


def _check_memory(checkpoint: Checkpoint, dtype: torch.dtype, device: torch.device | str) -> None:
    """Reject weights that exceed the free memory; computing needs still more."""
    needed = checkpoint.bytes_at(dtype)
    free = accelerators.free(torch.device(device))
    if needed > free:
        raise BadInput(
            f"{checkpoint.name}: too little memory, its weights in {dtype} need "
            f"{needed / 1e9:.1f} GB and {device} has {free / 1e9:.1f} GB free"
        )


def _check_finite(name: str, model: PreTrainedModel, where: str = "") -> None:
    """Reject NaN and infinite weights, naming the first tensor that has any."""
    for key, tensor in placing.tensors(model, dict(model.named_parameters())):
        if tensor.numel() and not all(map(_is_finite, tensor.detach().aminmax())):
            count = int((~tensor.isfinite()).sum())
            raise BadInput(
                f"{name}: {count} of {tensor.numel()} numbers in {key} are NaN or infinite{where}"
            )


def _is_finite(value: Tensor) -> bool:
    return bool(value.isfinite())


def _check_attention_name(name: str, attention: str | None) -> None:
    """Reject names with other characters: they make transformers fetch a kernel from the hub."""
    if attention is not None and not re.fullmatch(r"[a-z0-9_]+", attention):
        raise BadInput(
            f"{name}: {attention!r} is not an attention implementation; try eager or sdpa"
        )


def _set_attention(name: str, model: PreTrainedModel, attention: str | None) -> None:
    """Switch a built model to ``attention``, where this version of transformers can."""
    if attention is None or model.config._attn_implementation == attention:
        return
    try:
        compat.set_attention(model, attention)
    except (ValueError, ImportError, Missing) as error:
        raise _no_such_attention(name, attention, error) from error
    if model.config._attn_implementation != attention:
        raise _no_such_attention(name, attention, RuntimeError("it has only its own"))


def _no_such_attention(name: str, attention: str, error: BaseException) -> BadInput:
    return BadInput(f"{name}: cannot use the attention {attention!r} here ({brief(error, 120)})")


class NoTable(BadInput):
    """The loaded model has no single embedding matrix."""


def _check_tokenizer(loaded: Loaded) -> None:
    """Reject a tokenizer with ids that have no embedding in the model."""
    if isinstance(loaded.model, Wrapped):
        return  # what embeds its ids may not be known
    weight = getattr(loaded.model.get_input_embeddings(), "weight", None)
    if weight is None or weight.ndim != 2:
        raise NoTable(f"{loaded.name}: has no token embeddings, so it is not a language model")
    if loaded.tokenizer is not None:
        token, highest = max(loaded.tokenizer.get_vocab().items(), key=lambda item: item[1])
        if highest >= len(weight):
            raise BadInput(
                f"{loaded.name}: its tokenizer goes up to id {highest} ({token!r}), its embedding "
                f"has {len(weight)} rows (ids 0 to {len(weight) - 1}): of different models"
            )


def _ready(loaded: Loaded, device: torch.device) -> Loaded:
    """Do the last checks, then freeze the model, in evaluation mode and on its device."""
    _check_tokenizer(loaded)
    module: nn.Module = loaded.model
    try:
        if not weights.is_dispatched(module) and not weights.is_quantised(module):
            module.to(device)
    except (RuntimeError, TypeError, NotImplementedError) as error:
        raise BadInput(f"{loaded.name}: cannot be moved to {device} ({brief(error)})") from error
    if loaded.model.dtype == torch.float64:
        # The default for MoE models is a grouped product, which has no float64 kernel.
        with suppress(Missing):
            experts.switch(loaded.model, "eager")
    module.eval().requires_grad_(False)
    allocation.allocated(module)
    return loaded
