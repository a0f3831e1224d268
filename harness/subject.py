"""One small interface to any model: ids or embeddings in, states and logits out.

Only public interfaces of transformers are used.  What a model does not offer is a missing
capability with a name (`harness.capabilities`).
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from harness import compat, positions
from harness.errors import Missing
from harness.rows import Rows

if TYPE_CHECKING:
    from harness.faults import Planted
    from harness.loading import Loaded

ENCODER_PROMPT = 19
"""Tokens that an encoder–decoder's encoder is given while its decoder is examined: more than the
window of a tiny one.
"""


_PLACEHOLDER = re.compile(
    r"(image|video|audio|vision|speech|bo[iav]|eo[iav])\w*_token(_id|_index)"
)


def _placeholders(fields: Any) -> Iterator[Any]:
    """The ids that stand for media or mark them off, of a configuration and its parts."""
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from _placeholders(value)
        elif _PLACEHOLDER.fullmatch(str(name)):
            yield value


def _fields(config: Any, *names: str) -> list[int]:
    """The fields of ``config`` with these names that are whole numbers above 0."""
    values = [getattr(config, name, None) for name in names]
    return [value for value in values if isinstance(value, int) and value > 0]


def _by_position(states: Tensor, batch: int, n: int, what: str) -> Tensor:
    """``states``, if they are [batch, n, features]; some models add rows, streams or axes."""
    if not torch.is_tensor(states) or states.ndim != 3 or states.shape[:2] != (batch, n):
        shape = [*states.shape] if torch.is_tensor(states) else type(states).__name__
        raise Missing(f"{what} gives {shape}, and not a row for each of {batch} × {n} tokens")
    return states


SHORT = 8
"""Every model takes so many tokens, or its context's."""


LONG = 256
"""No prompt is longer; what a model does to long ones only it does to this one."""


class _Drawn(TorchFunctionMode):
    """Random numbers are drawn in ``dtype``, then widened to the dtype that was asked for.

    From one seed a generator draws others in float64 than in float32.  ``drew`` says whether any
    were drawn.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype, self.drew = dtype, False

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func not in (torch.randn, torch.rand):
            return func(*args, **kwargs)
        self.drew = True
        wanted = kwargs.get("dtype") or torch.get_default_dtype()
        return func(*args, **kwargs | {"dtype": self.dtype}).to(wanted)


class _Reached(Exception):
    """Raised by a hook to leave the forward pass after block k; never leaves this module."""


@dataclass(frozen=True)
class Output:
    """What one forward pass gave: ``rows`` and, if asked for, the cache.

    ``pooled`` names states with fewer rows than tokens, or more: they are not among the rows.
    """

    rows: Rows
    cache: Any = None
    pooled: tuple[str, ...] = ()


@dataclass(eq=False)
class Subject:
    """The model under test.

    ``name`` as asked for, ``model`` in evaluation mode with frozen parameters, ``digest`` of
    configuration and weights; ``planted`` is the fault in it, if there is one
    (`harness.faults`); ``drawn_as`` the dtype in which numbers that a pass draws are drawn, where
    that is not the model's own.  Every call runs without gradients unless ``embeddings``
    require one.
    """

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase | None = None
    digest: str = ""
    planted: Planted | None = field(default=None, repr=False)
    drawn_as: torch.dtype | None = None
    _encoded: dict[tuple[int, str], Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, loaded: Loaded) -> Subject:
        """The subject of a loaded model."""
        return cls(loaded.name, loaded.model, loaded.tokenizer, loaded.digest)

    # -- what it is ---------------------------------------------------------------------------

    @property
    def config(self) -> Any:
        """The configuration of the text model (a sub-configuration where there are several)."""
        return self.model.config.get_text_config(decoder=True)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype that tokens are embedded in: towers beside the text may be kept in another."""
        try:
            return self.embedding_table.dtype
        except Missing:
            return self.model.dtype

    @property
    def device(self) -> torch.device:
        """Where the model's parameters lie."""
        return self.model.device

    @cached_property
    def input_embeddings(self) -> Any:
        """The module that the tokens are looked up in: of an encoder-decoder, the decoder's.

        A model with two names the encoder's: then the decoder's is found by watching.
        """
        named: Any = self.model.get_input_embeddings()
        if not self.is_encoder_decoder:
            return named
        ids = torch.tensor([[1, 4, 2, 7]], device=self.device)
        # As long as ever: there are encoders that a short prompt changes for good.
        prompt = ids.repeat(1, ENCODER_PROMPT)[:, :ENCODER_PROMPT]
        try:
            encoded = self.encode(prompt)
            with torch.no_grad(), positions.LookUps() as look_ups:
                self.model(encoder_outputs=encoded, decoder_input_ids=ids)
        except (RuntimeError, ValueError, TypeError, LookupError, AttributeError):
            return named  # what breaks here breaks its laws
        places = {place for place, rows in look_ups.seen if torch.equal(rows, ids)}
        tables = [m for m in self.model.modules() if isinstance(m, nn.Embedding)]
        own = [table for table in tables if table.weight.data_ptr() in places]
        return named if named in own or not own else own[0]

    @property
    def embedding_table(self) -> Tensor:
        """W, the input embedding [vocabulary, hidden].

        Raises `Missing` where the model says of no one table that it is that.
        """
        table: Any = self.input_embeddings
        weight = getattr(table, "weight", None)
        if not torch.is_tensor(weight) or weight.ndim != 2:
            raise Missing(f"the model's input embedding is a {type(table).__name__}, no table")
        return weight

    @property
    def vocabulary(self) -> int:
        """Rows of W; where there is no such table, what the configuration says."""
        try:
            return self.embedding_table.shape[0]
        except Missing:
            return self.config.vocab_size

    @property
    def hidden(self) -> int:
        """The embedding's width; where there is no table, the width of the blocks."""
        try:
            return self.embedding_table.shape[1]
        except Missing:
            return self.config.hidden_size

    @property
    def layers(self) -> int:
        """Blocks of the decoder, or of the encoder where there is none; 0 if it does not say."""
        return getattr(self.config, "num_hidden_layers", 0)

    @property
    def heads(self) -> int:
        """Heads of attention in a layer, at most; 1 where the configuration does not say."""
        found = [_fields(layer, "num_attention_heads") for layer in self._layer_configs]
        return max((number for numbers in found for number in numbers), default=1)

    @cached_property
    def context(self) -> int | None:
        """The longest prompt that the positions allow, or None where there is no limit."""
        table = positions.position_table(self)
        if table is not None:
            rows = len(table.weight) - positions.position_offset(self)
            return rows - positions.positions_beyond(self)
        # -1 stands for no limit in some.
        named = ("max_position_embeddings", "max_seq_len", "max_target_positions")
        return min(_fields(self.config, *named), default=None)

    @cached_property
    def shortest(self) -> int:
        """The shortest prompt that an encoder takes: some pool their rows and need a few.

        1 for every model that generates: one that refuses a prompt breaks its laws.
        """
        if compat.can_generate(self.model):
            return 1
        for n in range(1, SHORT + 1):
            try:
                self.rows(self.content(torch.arange(n, device=self.device)[None]))
            except (RuntimeError, ValueError, IndexError):
                continue
            return n
        return 1

    @property
    def window(self) -> int | None:
        """The smallest sliding window, or chunk, that any layer sees; or None."""
        names = ("sliding_window", "window_size", "attention_chunk_size")
        sizes = [size for layer in self._layer_configs for size in _fields(layer, *names)]
        sizes += [2 * (size // 2) + 1 for size in _fields(self.config, "local_attention")]
        return min(sizes, default=None)

    @property
    def _layer_configs(self) -> list[Any]:
        """The configuration of every layer, where layers have their own; else the one of all."""
        if not getattr(self.config, "is_heterogeneous", False):
            return [self.config]
        return list(self.config.per_layer_config)

    @property
    def is_encoder_decoder(self) -> bool:
        """Whether an encoder's output is attended to; then the decoder is what is examined."""
        return bool(self.model.config.is_encoder_decoder)

    @cached_property
    def _parameters(self) -> frozenset[str]:
        return frozenset(inspect.signature(self.model.forward).parameters)

    def accepts(self, argument: str) -> bool:
        """Whether the model's forward names ``argument``."""
        return argument in self._parameters

    @property
    def cache_argument(self) -> str | None:
        """The name under which the model takes its cache."""
        names = ("past_key_values", "cache_params", "state")
        return next((name for name in names if self.accepts(name)), None)

    @property
    def positions_argument(self) -> str | None:
        """The name under which the model takes positions: of an encoder-decoder, the decoder's."""
        name = "decoder_position_ids" if self.is_encoder_decoder else "position_ids"
        return name if self.accepts(name) else None

    def content(self, numbers: Tensor) -> Tensor:
        """Whole numbers folded into the vocabulary, past ids that are no text: content.

        Some models leave whatever has the padding's id out of their positions, and put an image
        or a sound in the place of others.
        """
        ids = numbers % self.vocabulary
        return self._next_text[ids] if self._no_text else ids

    @cached_property
    def _no_text(self) -> frozenset[int]:
        """Ids of the padding, and of what the configuration names as places for other media."""
        padding = getattr(self.config, "pad_token_id", None)
        found = set(_placeholders(self.model.config.to_dict())) | {padding}
        return frozenset(i for i in found if isinstance(i, int) and 0 <= i < self.vocabulary)

    @cached_property
    def _next_text(self) -> Tensor:
        """For each id, itself or the next that is text: [vocabulary]."""
        text = [i for i in range(self.vocabulary) if i not in self._no_text] or [0]
        ids = torch.arange(self.vocabulary)
        places = torch.searchsorted(torch.tensor(text), ids) % len(text)
        return torch.tensor(text)[places].to(self.device)

    # -- running it ---------------------------------------------------------------------------

    def __call__(
        self,
        ids: Tensor | None = None,
        *,
        embeddings: Tensor | None = None,
        positions: Tensor | None = None,
        mask: Tensor | None = None,
        cache: Any = None,
        keep: bool = False,
        states: bool = True,
        **more: Any,
    ) -> Output:
        """Run the model once.

        ``ids`` [batch, n] or ``embeddings`` [batch, n, hidden]; ``positions`` [n] or [batch, n];
        ``mask`` 2-D [batch, n] of 0 and 1 (with a cache: over past and present) or additive 4-D
        (`harness.masks`); ``cache`` goes on from a past; ``keep`` returns the cache; ``states``
        asks for the hidden states (``state 0`` is the embedding, ``state L`` is after the final
        norm in most models).  ``more`` goes to the model as it is; an encoder-decoder is given a
        fixed prompt's ``encoder_outputs`` unless they are in it.
        """
        decoder = "decoder_" if self.is_encoder_decoder else ""
        given = ids if ids is not None else embeddings
        if given is None:
            raise ValueError("neither ids nor embeddings were given")
        batch = given.shape[0]
        arguments: dict[str, Any] = {"return_dict": True, **more}
        if ids is not None:
            arguments[f"{decoder}input_ids"] = ids
        else:
            arguments[f"{decoder}inputs_embeds"] = embeddings
        if positions is None and mask is not None and mask.ndim == 4:
            positions = self._counted(mask.shape[-1])
        if positions is not None:
            name = self.positions_argument or "position_ids"
            arguments[name] = positions.expand(batch, -1)
        if mask is not None:
            wide = mask.expand(batch, -1, -1, -1).to(self.dtype) if mask.ndim == 4 else mask
            arguments[f"{decoder}attention_mask"] = wide
        if states:
            arguments["output_hidden_states"] = True
        if self.cache_argument is not None:
            arguments["use_cache"] = keep or cache is not None
            if cache is not None:
                arguments[self.cache_argument] = cache
                if self._is_told_places:
                    arguments["cache_position"] = compat.places(cache, given.shape[1], self.device)
        elif self.accepts("use_cache"):
            arguments["use_cache"] = False  # or it may keep a state of its own between passes
        if self.is_encoder_decoder and "encoder_outputs" not in more:
            arguments["encoder_outputs"] = self._encoder_outputs(batch)
        wants_gradient = embeddings is not None and embeddings.requires_grad
        gradients = torch.set_grad_enabled(wants_gradient)
        drawing = _Drawn(self.drawn_as) if self.drawn_as else nullcontext()
        with gradients, self._compiling(), drawing, self._router_scores() as scores:
            output = self.model(**arguments)
        rows, pooled = self._rows(output, given.shape[1], more.get("logits_to_keep"))
        if scores:
            gap = self._router_gap(scores, batch)
            # A row depends on every row that it sees: all of them under a mask of the caller's.
            seen = gap.min(1, keepdim=True).values.expand_as(gap) if mask is not None else gap
            rows.tensors["router gap"] = seen.cummin(dim=1).values
        kept = output.get(self.cache_argument or "", None)
        if self._is_told_places and kept is not None:
            compat.count(kept, cache, given.shape[1])
        return Output(rows, kept, pooled)

    @cached_property
    def _is_told_places(self) -> bool:
        """Whether the model has to be told where new tokens stand when it goes on from a state."""
        return self.cache_argument == "cache_params" and self.accepts("cache_position")

    def _compiling(self) -> AbstractContextManager[Any]:
        """Keep flexible attention uncompiled on a CPU: compiling takes minutes for every shape."""
        if self.attention == "flex_attention" and self.device.type == "cpu":
            return torch.compiler.set_stance("force_eager")
        return nullcontext()

    def _counted(self, n: int) -> Tensor | None:
        """The usual positions where a table is looked up by them, otherwise None.

        Some models count them from the mask, which goes wrong for one that is 4-D.
        """
        if positions.position_table(self) is None or self.positions_argument is None:
            return None
        return positions.usual(self, n)

    def rows(self, ids: Tensor | None = None, **arguments: Any) -> Rows:
        """`__call__` for its rows alone."""
        return self(ids, **arguments).rows

    def _rows(self, output: Any, n: int, kept: int | None = None) -> tuple[Rows, tuple[str, ...]]:
        """The states and logits that have a row for each of ``n`` tokens, and names of others.

        Models that pool inside have states with fewer; of logits only the last ``kept`` may have
        been asked for.
        """
        decoder = "decoder_" if self.is_encoder_decoder else ""
        tensors: dict[str, Tensor] = {}
        for k, state in enumerate(output.get(f"{decoder}hidden_states") or ()):
            tensors[f"state {k}"] = state
        if "logits" in output:
            tensors["logits"] = output["logits"]
        elif "last_hidden_state" in output:
            tensors["output"] = output["last_hidden_state"]
        by_position = {
            name: tensor
            for name, tensor in tensors.items()
            if tensor.ndim == 3 and (tensor.shape[1] == n or (kept and name == "logits"))
        }
        if tensors and not by_position:
            shape = [*tensors.values()][-1].shape
            raise Missing(f"the model gives no row for each of {n} tokens, but {[*shape]}")
        return Rows(by_position), tuple(
            name
            for name, tensor in tensors.items()
            if tensor.ndim == 3 and name not in by_position
        )

    @cached_property
    def routes(self) -> bool:
        """Whether tokens are routed to experts, and the model can tell by what scores."""
        experts = ("num_local_experts", "num_experts")
        told = hasattr(self.config, "output_router_logits") and self.accepts(
            "output_router_logits"
        )
        return told and any(getattr(self.config, name, None) for name in experts)

    @contextmanager
    def _router_scores(self) -> Iterator[list[Tensor]]:
        """The scores [batch × n, experts] of every routing layer, once a pass has been made.

        They are asked of the body: asked of the whole model they bring a balancing loss that
        does not take 4-D masks.
        """
        scores: list[Tensor] = []
        if not self.routes:
            yield scores
            return
        body = self.model.base_model

        def ask(module: nn.Module, given: tuple, named: dict) -> tuple[tuple, dict]:
            return given, {**named, "output_router_logits": True}

        def hear(module: nn.Module, given: tuple, result: Any) -> None:
            scores.extend(result.get("router_logits") or ())

        hooks = [
            body.register_forward_pre_hook(ask, with_kwargs=True),
            body.register_forward_hook(hear),
        ]
        try:
            yield scores
        finally:
            for hook in hooks:
                hook.remove()

    def _router_gap(self, logits: list[Tensor], batch: int) -> Tensor:
        """How clearly experts are chosen: [batch, n, 1], the least over layers of the gap in
        probability between the last expert taken and the first one left.
        """
        taken = self.config.num_experts_per_tok
        gaps = []
        for layer in logits:
            best = layer.double().softmax(-1).sort(-1, descending=True).values
            if best.shape[-1] > taken:
                gaps.append((best[:, taken - 1] - best[:, taken]).reshape(batch, -1, 1))
        return torch.stack(gaps).amin(0) if gaps else torch.ones(batch, 1, 1)

    def _encoder_outputs(self, batch: int) -> Any:
        """The encoder's states for a fixed prompt, repeated for every row of the batch."""
        key = batch, self.attention
        if key not in self._encoded:
            ids = torch.arange(ENCODER_PROMPT, device=self.device) * 5 % self.vocabulary
            self._encoded[key] = self.encode(ids.expand(batch, -1))
        return copy.copy(self._encoded[key])

    def encode(self, ids: Tensor, mask: Tensor | None = None) -> Any:
        """What the encoder makes of ``ids`` under ``mask`` (1 for content), [batch, n] both."""
        masked = {} if mask is None else {"attention_mask": mask}
        with torch.no_grad(), self._compiling():
            return self.model.get_encoder()(ids, **masked)

    # -- its blocks ---------------------------------------------------------------------------

    @cached_property
    def blocks(self) -> nn.ModuleList:
        """The list of modules that holds the blocks: as long as the model is deep.

        Raises LookupError where no such list is found.  A model that shares one block among its
        layers has a shorter list.
        """
        body = self.model.get_decoder() if self.is_encoder_decoder else self.model.base_model
        lists = [m for m in body.modules() if isinstance(m, nn.ModuleList) and len(m)]
        exact = [m for m in lists if len(m) == self.layers]
        shared = [m for m in lists if len(m) == getattr(self.config, "num_hidden_groups", -1)]
        run = self._run_by_a_pass(exact) if len(exact) > 1 else exact
        for found in (*run, *exact, *shared):
            return found
        raise LookupError(f"{self.name}: no list of {self.layers} blocks in {type(body).__name__}")

    def _run_by_a_pass(self, lists: list[nn.ModuleList]) -> list[nn.ModuleList]:
        """Those of ``lists`` that a prompt goes through: not the blocks of an image's encoder."""
        ran: list[nn.Module] = []
        hooks = [
            module.register_forward_pre_hook(lambda module, _: ran.append(module))
            for each in lists
            for module in each
        ]
        try:
            self(self.content(torch.arange(SHORT, device=self.device)[None]), states=False)
        except (RuntimeError, ValueError, TypeError):
            return []
        finally:
            for hook in hooks:
                hook.remove()
        return [each for each in lists if any(module in ran for module in each)]

    def block_output(self, depth: int, ids: Tensor | None = None, **arguments: Any) -> Tensor:
        """O_k: the output of block ``depth`` [batch, n, hidden], before any final norm.

        Runs the model's own forward and leaves it after block ``depth``: the later ones do not
        run.  Depth 0 is the first block's input.  Raises LookupError where the block is never run
        as such, and `Missing` where it gives something else than a row for each token.
        """
        if not 0 <= depth <= self.layers:
            raise ValueError(f"{self.name} has {self.layers} blocks, not {depth}")
        taken: list[Tensor] = []

        def leave(state: Tensor) -> None:
            taken.append(state)
            raise _Reached

        calls = 0

        def before(module: nn.Module, given: tuple, named: dict) -> None:
            leave(given[0] if given else named["hidden_states"])

        def after(module: nn.Module, given: tuple, result: Any) -> None:
            nonlocal calls
            calls += 1
            if calls == depth:
                leave(result[0] if isinstance(result, tuple | list) else result)

        if depth == 0:
            hooks = [self.blocks[0].register_forward_pre_hook(before, with_kwargs=True)]
        else:
            hooks = [block.register_forward_hook(after) for block in self.blocks]
        try:
            self(ids, states=False, **arguments)
        except _Reached:
            given = ids if ids is not None else arguments["embeddings"]
            return _by_position(taken[0], given.shape[0], given.shape[1], f"block {depth}")
        finally:
            for hook in hooks:
                hook.remove()
        raise LookupError(f"{self.name}: block {depth} was never run")

    def head_input(self, ids: Tensor | None = None, **arguments: Any) -> Tensor:
        """What the output embedding is given: [batch, n, hidden], past the final norm.

        Raises LookupError where there is no output embedding.
        """
        head = self.model.get_output_embeddings()
        if head is None:
            raise LookupError(f"{self.name} has no output embedding")
        taken: list[Tensor] = []

        def before(module: nn.Module, given: tuple) -> None:
            taken.append(given[0])
            raise _Reached

        hook = head.register_forward_pre_hook(before)
        try:
            self(ids, states=False, **arguments)
        except _Reached:
            return taken[0]
        finally:
            hook.remove()
        raise LookupError(f"{self.name}: its output embedding was never run")

    def attentions(self, ids: Tensor) -> list[Tensor]:
        """Weights of self-attention, [batch, heads, n, n] a layer, written out (eager).

        Empty where the model gives none.  Raises what the model raises.
        """
        decoder = "decoder_" if self.is_encoder_decoder else ""
        more = {"encoder_outputs": self._encoder_outputs(len(ids))} if decoder else {}
        with self.attending_by("eager"), torch.no_grad():
            output = self.model(
                **{f"{decoder}input_ids": ids}, **more, output_attentions=True, return_dict=True
            )
        given = output.get(f"{decoder}attentions") or ()
        return [layer for layer in given if torch.is_tensor(layer) and layer.ndim == 4]

    # -- its twins ----------------------------------------------------------------------------

    @cached_property
    def oracle(self) -> Subject:
        """The same model in float64, parameter for parameter; itself where it already is.

        Raises `Missing` where it does not run so: then nothing tells what is right.
        """
        if self.dtype == torch.float64:
            return self
        twin = copy.deepcopy(self.model).double()
        if hasattr(twin, "set_experts_implementation"):
            twin.set_experts_implementation("eager")  # the grouped kernels have no float64
        drawn = self.dtype if self._draws else None
        oracle = Subject(f"{self.name} in float64", twin, None, drawn_as=drawn)
        ids = self.content(torch.arange(max(2, self.shortest), device=self.device)[None])
        self.rows(ids)  # what raises here is no matter of float64
        try:
            oracle.rows(ids)
        except (RuntimeError, TypeError, ValueError) as error:
            said = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise Missing(f"the model does not run in float64: {said}") from error
        return oracle

    @cached_property
    def _draws(self) -> bool:
        """Whether a long prompt's pass draws random numbers, as some do to hash or to sample."""
        n = min(self.context or LONG, LONG)
        noted = _Drawn(self.dtype)
        with suppress(RuntimeError, TypeError, ValueError, LookupError, AssertionError), noted:
            self(self.content(torch.arange(n, device=self.device)[None]), states=False)
        return noted.drew

    def of_same_code(self, name: str, model: PreTrainedModel) -> Subject:
        """A subject of another model that the same code runs, faults in it included."""
        if self.planted is not None:
            self.planted.sow(model)
        return Subject(name, model, self.tokenizer, planted=self.planted)

    @property
    def known_twins(self) -> list[nn.Module]:
        """The oracle's model, if it is another."""
        return [] if self.oracle is self else [self.oracle.model]

    @property
    def attention(self) -> str:
        """The attention implementation in use."""
        return getattr(self.model.config, "_attn_implementation", None) or "eager"

    @contextmanager
    def attending_by(self, implementation: str) -> Iterator[Subject]:
        """The subject with another attention implementation, for the length of a block."""
        usual = self.attention
        try:
            compat.set_attention(self.model, implementation)  # refused, it may be set in part
            yield self
        finally:
            compat.set_attention(self.model, usual)

    def tokens(self, ids: list[int]) -> list[str]:
        """The ids as token strings; the numbers themselves where there is no tokenizer."""
        if self.tokenizer is None:
            return [f"<{i}>" for i in ids]
        return [str(self.tokenizer.convert_ids_to_tokens(i)) for i in ids]
