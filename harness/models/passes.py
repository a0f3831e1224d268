"""One forward pass: its inputs, and the outputs that have a row for each token."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from assay.harness.models import compat, encoders, positions, routing
from assay.harness.models.core import Core, Output, Pass
from assay.harness.models.float64 import Drawn
from assay.harness.models.lengths import SHORT
from assay.harness.models.rows import Rows
from assay.harness.models.shortage import contained, pass_on
from assay.harness.results.errors import REFUSALS, Missing


def run(subject: Core, asked: Pass) -> Output:
    """Run the model once; without gradients unless the embeddings require one."""
    batch, n = asked.given.shape[:2]
    arguments = _arguments(subject, asked)
    wants_gradient = asked.embeddings is not None and asked.embeddings.requires_grad
    gradients = torch.set_grad_enabled(wants_gradient)
    drawing = Drawn(subject.drawn_as) if subject.drawn_as else nullcontext()
    listening = routing.listening(subject)
    with gradients, uncompiled(subject), drawing, listening as scores, contained():
        output = subject.model(**arguments)
    rows, pooled = _rows(subject, output, n, asked)
    if scores:
        # A row depends on every row that it sees: all of them under a mask of the caller's.
        taken, ahead = subject.config.num_experts_per_tok, asked.mask is not None
        rows.tensors["router gap"] = routing.gap(scores, taken, batch, ahead)
    kept = output.get(subject.cache_argument or "", None)
    if _is_told_places(subject) and kept is not None:
        compat.count(kept, asked.cache, n)
    return Output(rows, kept, pooled)


def _arguments(subject: Core, asked: Pass) -> dict[str, Any]:
    """What the model's forward is called with, under the names that it has for it."""
    decoder = "decoder_" if subject.is_encoder_decoder else ""
    batch, n = asked.given.shape[:2]
    arguments: dict[str, Any] = {"return_dict": True, **asked.more}
    if asked.ids is not None:
        arguments[f"{decoder}input_ids"] = asked.ids
    else:
        arguments[f"{decoder}inputs_embeds"] = asked.embeddings
    mask, places = asked.mask, asked.positions
    if places is None and mask is not None and mask.ndim == 4:
        places = _counted(subject, mask.shape[-1])
    if places is not None:
        arguments[subject.positions_argument or "position_ids"] = places.expand(batch, -1)
    if mask is not None:
        wide = mask.expand(batch, -1, -1, -1).to(subject.dtype) if mask.ndim == 4 else mask
        arguments[f"{decoder}attention_mask"] = wide
    if asked.states:
        arguments["output_hidden_states"] = True
    if subject.cache_argument is not None:
        arguments["use_cache"] = asked.keep or asked.cache is not None
        if asked.cache is not None:
            arguments[subject.cache_argument] = asked.cache
            if _is_told_places(subject):
                arguments["cache_position"] = compat.places(asked.cache, n, subject.device)
    elif subject.accepts("use_cache"):
        arguments["use_cache"] = False  # or it may keep a state of its own between passes
    if subject.is_encoder_decoder and "encoder_outputs" not in asked.more:
        arguments["encoder_outputs"] = encoders.fixed(subject, batch)
    return arguments


def _is_told_places(subject: Core) -> bool:
    """Whether the model has to be told where new tokens stand when it goes on from a state."""
    return subject.cache_argument == "cache_params" and subject.accepts("cache_position")


def _counted(subject: Core, n: int) -> Tensor | None:
    """The usual positions where a table is looked up by them, otherwise None.

    Some models count them from the mask, which goes wrong for one that is 4-D.
    """
    if positions.position_table(subject) is None or subject.positions_argument is None:
        return None
    return positions.usual(subject, n)


def _rows(subject: Core, output: Any, n: int, asked: Pass) -> tuple[Rows, tuple[str, ...]]:
    """The states and logits that have a row for each of ``n`` tokens, and names of others.

    Models that pool inside have states with fewer; of logits only the last may have been asked
    for.  Raises `Missing` where nothing has a row for each token, and ValueError where that comes
    of a cache: a model that gives rows without one breaks its laws.
    """
    kept = asked.more.get("logits_to_keep")
    decoder = "decoder_" if subject.is_encoder_decoder else ""
    tensors: dict[str, Tensor] = {}
    for k, state in enumerate(output.get(f"{decoder}hidden_states") or ()):
        tensors[f"state {k}"] = state
    if "logits" in output:
        tensors["logits"] = output["logits"]
    elif "last_hidden_state" in output:
        tensors["output"] = output["last_hidden_state"]
    for name, tensor in tensors.items():
        if not tensor.is_floating_point():
            raise ValueError(f"the model's {name} are {tensor.dtype} and not floats")
    by_position = {
        name: tensor
        for name, tensor in tensors.items()
        if tensor.ndim == 3 and (tensor.shape[1] == n or (kept and name == "logits"))
    }
    if tensors and not by_position:
        shape = [*tensors.values()][-1].shape
        said = f"the model gives no row for each of {n} tokens, but {[*shape]}"
        cached = asked.keep or asked.cache is not None
        raise ValueError(f"with a cache {said}") if cached else Missing(said)
    others = (name for name in tensors if name not in by_position)
    return Rows(by_position), tuple(name for name in others if tensors[name].ndim == 3)


def uncompiled(subject: Core) -> AbstractContextManager[Any]:
    """Keep flexible attention uncompiled on a CPU: compiling takes minutes for every shape."""
    if subject.attention == "flex_attention" and subject.device.type == "cpu":
        return torch.compiler.set_stance("force_eager")
    return nullcontext()


def passes_on(subject: Core, name: str) -> bool:
    """Whether positions given as ``name``, which the model's forward does not name, are read."""
    n = max(SHORT, subject.shortest)
    ids = subject.content(torch.arange(n, device=subject.device)[None] * 7)
    try:
        usual = run(subject, _plain(ids)).rows
        given = run(subject, _plain(ids, **{name: torch.zeros_like(ids)})).rows
    except (Missing, *REFUSALS) as error:
        pass_on(error)
        return False
    pairs = [(tensor, given[key]) for key, tensor in usual.tensors.items() if key != "router gap"]
    return any(bool((a - b).norm() > 1e-3 * a.norm()) for a, b in pairs)


def _plain(ids: Tensor, **more: Any) -> Pass:
    return Pass(ids, None, None, None, None, False, False, more)


def attentions(subject: Core, ids: Tensor) -> list[Tensor]:
    """Weights of self-attention, [batch, heads, n, n] a layer, written out (eager).

    Empty where the model gives none.  Raises what the model raises.
    """
    decoder = "decoder_" if subject.is_encoder_decoder else ""
    more = {"encoder_outputs": encoders.fixed(subject, len(ids))} if decoder else {}
    with subject.attending_by("eager"), torch.no_grad():
        output = subject.model(
            **{f"{decoder}input_ids": ids}, **more, output_attentions=True, return_dict=True
        )
    given = output.get(f"{decoder}attentions") or ()
    return [layer for layer in given if torch.is_tensor(layer) and layer.ndim == 4]
