"""One forward pass: its inputs, and the outputs that have a row for each token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from assay.harness.models.machine import accelerators
from assay.harness.models.machine.shortage import pass_on
from assay.harness.models.subject import (
    blocks,
    compat,
    encoders,
    kept_rows,
    positions,
    returned,
    roles,
    selection,
)
from assay.harness.models.subject.drawing import Drawn
from assay.harness.models.subject.lengths import SHORT
from assay.harness.models.subject.roles import Role
from assay.harness.models.subject.rows import Output, Rows
from assay.harness.results.errors import REFUSALS, Missing

if TYPE_CHECKING:
    from assay.harness.models.subject import Subject

SETTINGS = (Role.NAMED_OUTPUT, Role.STATES, Role.ATTENTIONS)
"""Arguments that choose what a pass returns: left out where a forward does not take them."""


@dataclass(frozen=True)
class Pass:
    """A request for a pass: the arguments of `harness.models.subject.Subject.__call__`."""

    ids: Tensor | None
    embeddings: Tensor | None
    positions: Tensor | None
    mask: Tensor | None
    cache: Any
    keep: bool
    states: bool
    options: dict[str, Any]

    @property
    def inputs(self) -> Tensor:
        """The ids [batch, n] or the embeddings [batch, n, hidden]; ValueError without either."""
        inputs = self.ids if self.ids is not None else self.embeddings
        if inputs is None:
            raise ValueError("neither ids nor embeddings were given")
        return inputs


def run(subject: Subject, request: Pass) -> Output:
    """Run the model once; without gradients unless the embeddings or a parameter require one.

    Where the laws share the pass, it is looked up instead (`kept_rows.reused`).
    """
    if (key := kept_rows.key(subject, request)) is None:
        return _run(subject, request)
    store = kept_rows.of(subject)
    if (output := store.find(key, request.inputs.numel())) is not None:
        return output
    output = _run(subject, request)
    store.keep(key, output)
    return output


def _run(subject: Subject, request: Pass) -> Output:
    batch, n = request.inputs.shape[:2]
    home, drawn_as = subject.settings.home, subject.settings.drawn_as
    if away := home is not None and home != subject.device:
        request = _moved(request, subject.device)
    positional, named = called_with(subject, request)
    wants_gradient = request.embeddings is not None and request.embeddings.requires_grad
    wants_gradient = wants_gradient or any(p.requires_grad for p in subject.model.parameters())
    gradients = torch.set_grad_enabled(wants_gradient)
    drawing = Drawn(drawn_as) if drawn_as else nullcontext()
    hooked = blocks.states(subject) if request.states and not returns_states(subject) else None
    with (
        gradients,
        uncompiled(subject),
        drawing,
        _routed(subject) as (scores, choices),
        hooked or nullcontext({}) as states,
        _embedded(subject, request.embeddings),
    ):
        output = subject.model(*positional, **named)
    output = {**returned.mapping(output, batch, n), **states}
    rows, pooled = _rows(subject, output, n, request)
    choices = [each for each in choices if len(each) == batch * n]  # not those of an encoder
    if scores or choices:
        # A row depends on every row that it attends to: all of them under a caller's mask.
        top_k = subject.config.num_experts_per_tok if scores else 0
        ahead = request.mask is not None
        from assay.harness.models.subject import routing

        rows.tensors["router gap"] = routing.gap(scores, top_k, batch, ahead, choices)
    elif selection.selects(subject):
        rows.tensors["router gap"] = torch.ones(batch, n, 1, device=subject.device)
    if away:
        rows = rows.map(lambda tensor: tensor.to(home))
    cache = None
    if request.keep or request.cache is not None:
        cache = roles.returned_cache(output, subject.cache_argument)
    if cache is not None and _needs_places(subject):
        compat.count(cache, request.cache, n)
    loss = output.get("loss") if Role.LABELS in request.options else None
    return Output(rows, cache, pooled, loss)


@contextmanager
def _routed(subject: Subject) -> Iterator[tuple[list[Tensor], list[Tensor]]]:
    """The scores of routers and the gaps of choices, after a pass in the block (`routing`)."""
    if not selection.routes(subject) and not selection.chooses(subject):
        yield [], []
        return
    from assay.harness.models.subject import routing

    with routing.listening(subject) as scores, routing.choosing(subject) as choices:
        yield scores, choices


def _moved(request: Pass, device: torch.device) -> Pass:
    """The request with its inputs on ``device``; caches are there, as the model returned them."""
    inputs = {n: v for n, v in vars(request).items() if torch.is_tensor(v)}
    moved: dict[str, Any] = {name: tensor.to(device) for name, tensor in inputs.items()}
    moved["options"] = {
        name: value.to(device) if torch.is_tensor(value) else value
        for name, value in request.options.items()
    }
    return replace(request, **moved)


def returns_states(subject: Subject) -> bool:
    """Whether a pass can be asked for the states; else they are read by hooks at the blocks."""
    return subject.bound.open or subject.takes(Role.STATES)


def takes_embeddings(subject: Subject) -> bool:
    """Whether forward takes embeddings; else they replace what the embedding returns."""
    return subject.bound.open or subject.takes(Role.EMBEDDINGS)


@contextmanager
def _embedded(subject: Subject, embeddings: Tensor | None) -> Iterator[None]:
    """Make the model's embedding return ``embeddings`` [batch, n, hidden] within a block.

    Raises `Missing` where the embedding is not given the ids as a whole, and nothing else.
    """
    if embeddings is None or takes_embeddings(subject):
        yield
        return
    embedding = subject.input_embeddings
    if not isinstance(embedding, nn.Module):
        raise Missing("the model's forward takes no embeddings, and no module embeds its ids")
    whole, others = 0, 0

    def replaced(module: nn.Module, inputs: tuple[Any, ...], result: Any) -> Tensor | None:
        nonlocal whole, others
        if not inputs or not torch.is_tensor(inputs[0]) or inputs[0].shape != embeddings.shape[:2]:
            others += 1
            return None
        whole += 1
        return embeddings.clone()

    hook = embedding.register_forward_hook(replaced)
    try:
        yield
    finally:
        hook.remove()
    if others or not whole:
        raise Missing("the model does not embed its ids as a whole, and takes no embeddings")


def called_with(subject: Subject, request: Pass) -> tuple[tuple[Tensor, ...], dict[str, Any]]:
    """What the model's forward is called with: the ids where it has no name for them, and its
    arguments by name.
    """
    fit = _arguments(subject, request)
    if not subject.bound.open:
        fit = {role: v for role, v in fit.items() if role not in SETTINGS or role in subject.bound}
    if subject.takes(Role.IDS) or Role.IDS not in fit:
        return (), subject.bound.named(fit)
    ids, rest, name = fit.pop(Role.IDS), subject.bound.named(fit), ids_argument(subject)
    return ((ids,), rest) if name is None else ((), {name: ids, **rest})


def ids_argument(subject: Subject) -> str | None:
    """The name of forward's argument for the ids; None where it has none."""
    bound = subject.bound
    return bound[Role.IDS] if Role.IDS in bound else roles.ids_argument(subject.model.forward)


def _arguments(subject: Subject, request: Pass) -> dict[str, Any]:
    """The arguments of the model's forward, by role."""
    batch, n = request.inputs.shape[:2]
    arguments: dict[str, Any] = {Role.NAMED_OUTPUT: True, **request.options}
    if request.ids is not None:
        arguments[Role.IDS] = request.ids
    elif takes_embeddings(subject):
        arguments[Role.EMBEDDINGS] = request.embeddings
    else:
        arguments[Role.IDS] = torch.zeros(batch, n, dtype=torch.long, device=subject.device)
    if selection.routes(subject) and getattr(subject.config, "output_router_logits", False):
        arguments[Role.ROUTER_LOGITS] = False  # it would add the experts' loss to the labels'
    mask, places = request.mask, request.positions
    if places is None and mask is not None and mask.ndim == 4:
        places = _counted(subject, mask.shape[-1])
    if places is not None:
        name = subject.positions_argument or roles.SPELLINGS[Role.POSITIONS][0]
        arguments[name] = places.expand(batch, -1)
    if mask is not None:
        wide = mask.expand(batch, -1, -1, -1).to(subject.dtype) if mask.ndim == 4 else mask
        arguments[Role.MASK] = wide
    if request.states:
        arguments[Role.STATES] = True
    if subject.takes(Role.KEEP) or (subject.bound.open and subject.takes(Role.CACHE)):
        # Without a cache too: a model may keep a state of its own between passes.
        arguments[Role.KEEP] = request.keep or request.cache is not None
    if request.cache is not None and subject.cache_argument is not None:
        arguments[subject.cache_argument] = request.cache
        if _needs_places(subject):
            arguments[Role.NEW_INDICES] = compat.places(request.cache, n, subject.device)
    if subject.is_encoder_decoder and Role.ENCODED not in request.options:
        arguments[Role.ENCODED] = encoders.fixed(subject, batch)
    return arguments


def _needs_places(subject: Subject) -> bool:
    """Whether the model needs the positions of new tokens when it continues from a state."""
    return subject.cache_argument in roles.STATE_NAMES and subject.takes(Role.NEW_INDICES)


def _counted(subject: Subject, n: int) -> Tensor | None:
    """The usual positions where they index an embedding matrix, otherwise None.

    Some models count them from the mask, which fails for a 4-D mask.
    """
    if positions.position_table(subject) is None or subject.positions_argument is None:
        return None
    return positions.usual(subject, n)


def _rows(subject: Subject, output: Any, n: int, request: Pass) -> tuple[Rows, tuple[str, ...]]:
    """The states and logits that have a row for each of ``n`` tokens, and names of others.

    Models that pool have states with fewer; the request may be for the last logits only.  Raises
    `Missing` where nothing has a row for each token, and ValueError where that happens with a
    cache: a model that returns rows without one breaks its laws.
    """
    few_logits = request.options.get(Role.KEPT_LOGITS) is not None
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
        if tensor.ndim == 3 and (tensor.shape[1] == n or (few_logits and name == "logits"))
    }
    if tensors and not by_position:
        shape = [*tensors.values()][-1].shape
        message = f"the model gives no row for each of {n} tokens, but {[*shape]}"
        cached = request.keep or request.cache is not None
        raise ValueError(f"with a cache {message}") if cached else Missing(message)
    other_names = (name for name in tensors if name not in by_position)
    return Rows(by_position), tuple(name for name in other_names if tensors[name].ndim == 3)


def uncompiled(subject: Subject) -> AbstractContextManager[Any]:
    """Keep flex attention uncompiled on a CPU, where compiling takes minutes for every shape, and
    in float64, for which a GPU's kernel cannot always be compiled.
    """
    if subject.attention != "flex_attention":
        return nullcontext()
    # Not the subject's dtype, which is that of embeddings that a pass may have to find.
    exact = any(each.dtype == torch.float64 for each in subject.model.parameters())
    if exact or subject.device.type == "cpu":
        return _eagerly()
    return nullcontext()


@contextmanager
def _eagerly() -> Iterator[None]:
    """Run what is compiled as it is written.

    Inductor takes a second to import, and `torch.compile` imports it before anything is compiled.
    Where it is not needed, since there is no GPU, functions are left as they are.
    """
    before = torch.compile
    if accelerators.kind_here() is None:
        torch.compile = _as_written  # type: ignore[assignment]  # one of its signatures
    try:
        with torch.compiler.set_stance("force_eager"):
            yield
    finally:
        torch.compile = before


def _as_written(function: Any = None, **_: Any) -> Any:
    """`torch.compile` without compiling, also as a decorator with arguments."""
    return function if function is not None else lambda function: function


def passes_on(subject: Subject, name: str) -> bool:
    """Whether the model reads positions passed as ``name``, which its forward does not name."""
    n = max(SHORT, subject.shortest)
    ids = subject.content(torch.arange(n, device=subject.device)[None] * 7)
    try:
        usual = run(subject, _plain(ids)).rows
        rows = run(subject, _plain(ids, **{name: torch.zeros_like(ids)})).rows
    except (Missing, *REFUSALS) as error:
        pass_on(error)
        return False
    pairs = [(tensor, rows[key]) for key, tensor in usual.tensors.items() if key != "router gap"]
    return any(bool((a - b).norm() > 1e-3 * a.norm()) for a, b in pairs)


def _plain(ids: Tensor, **options: Any) -> Pass:
    return Pass(ids, None, None, None, None, False, False, options)


def attentions(subject: Subject, ids: Tensor) -> list[Tensor]:
    """Self-attention weights (eager), [batch, heads, n, n] for each layer.

    Empty where the model returns none.  Raises what the model raises.
    """
    decoder = "decoder_" if subject.is_encoder_decoder else ""
    positional, named = called_with(subject, _plain(ids, attentions=True))
    with subject.attending_by("eager"), torch.no_grad():
        output = subject.model(*positional, **named)
    layers = output.get(f"{decoder}attentions") or ()
    return [layer for layer in layers if torch.is_tensor(layer) and layer.ndim == 4]
