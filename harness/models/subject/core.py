"""The core of every model wrapper: its fields, and how to run it.

`models.subject.subject.Subject` is the only implementation.  The modules that it uses (positions,
lengths, passes, …) take a `Core`, which avoids circular imports.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, Self

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from assay.harness.models.subject import configuration, roles
from assay.harness.models.subject.offer import Offer
from assay.harness.models.subject.provenance import UNKNOWN, Provenance
from assay.harness.models.subject.roles import Bound, Role
from assay.harness.models.subject.rows import Rows
from assay.harness.models.subject.wrapped import Wrapped
from assay.harness.results.errors import Missing


class Injected(Protocol):
    """An injected fault in a model, and in each further model that the same code runs."""

    @property
    def elsewhere(self) -> tuple[str, ...]:
        """A function, as ``module:name``, and arguments: it injects the fault where another
        process runs the code.
        """

    def sow(self, model: PreTrainedModel) -> None:
        """Inject it into another model."""

    def undo(self) -> None:
        """Restore every model."""


class Watch(Protocol):
    """A clock of a subject's passes (`harness.models.subject.clock`)."""

    def check(self) -> None:
        """End a claim that has taken too long."""

    def watch(self, model: nn.Module) -> None:
        """Time another model's passes too."""

    def forget(self, model: nn.Module) -> None:
        """Stop timing that model's passes, and let go of it."""

    def paused(self) -> AbstractContextManager[None]:
        """Stop timing within a block."""


@dataclass(frozen=True)
class Output:
    """The output of one forward pass: ``rows`` and, if requested, the cache.

    ``pooled`` names states whose rows are not one for each token: they are not among ``rows``.
    ``loss`` is the model's own, of the ``labels`` among the options.
    """

    rows: Rows
    cache: Any = None
    pooled: tuple[str, ...] = ()
    loss: Tensor | None = None


@dataclass(frozen=True)
class Pass:
    """A request for a pass: the arguments of `harness.models.subject.subject.Subject.__call__`."""

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


@dataclass(eq=False)
class Core(ABC):
    """The fields of the model under test, and the raw passes that the modules below need.

    ``name`` as requested, ``model`` in evaluation mode with frozen parameters, ``digest`` of
    configuration and weights; ``injected`` is its injected fault, if any (`harness.faults`);
    ``drawn_as`` the dtype in which a pass draws random numbers, where that is not the model's own;
    ``listens`` says whether a pass notes how experts are chosen, which compiled code must not;
    ``attends`` the value of ``--attends`` (`harness.models.subject.meant`); ``offer`` the recorded
    capabilities of its type, or why there are none (`models.subject.offer`); ``provenance`` the
    origin of its weights; ``oracle_way`` the setting ``oracle`` (`models.reference.float64`);
    with ``bitwise`` a row must have the same bits however it is run (the setting ``bitwise``).
    """

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase | None = None
    digest: str = ""
    injected: Injected | None = field(default=None, repr=False)
    drawn_as: torch.dtype | None = None
    listens: bool = True
    attends: str | None = None
    offer: Offer | str = ""
    provenance: Provenance = UNKNOWN
    oracle_way: str = "auto"
    bitwise: bool = False
    known_reference: Core | None = field(default=None, init=False, repr=False)
    """The float64 copy (`oracle`), once a claim has used it."""
    clocks: list[Watch] = field(default_factory=list, init=False, repr=False)
    """The clocks that now time its passes, and those of the float64 copy once it is built."""
    reach: float = field(default=math.inf, init=False, repr=False)
    """Parameters times tokens of a usual prompt of a law, from the run's profile."""
    far: float = field(default=math.inf, init=False, repr=False)
    """Parameters times tokens of the one prompt that is to pass every window."""
    home: torch.device | None = field(default=None, init=False, repr=False)
    """Of a float64 reference, its model's device: rows are returned there."""
    _no_reference: str = field(default="", init=False, repr=False)

    @property
    def config(self) -> Any:
        """The configuration of the text model (a sub-configuration where there are several)."""
        return self.model.config.get_text_config(decoder=True)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the token embeddings: parts for other media may have another."""
        try:
            return self.embedding_table.dtype
        except Missing:
            return self.model.dtype

    @property
    def device(self) -> torch.device:
        """The device of the model's parameters."""
        return self.model.device

    @property
    def embedding_table(self) -> Tensor:
        """W, the input embedding [vocabulary, hidden].

        Raises `Missing` where the model has no single embedding matrix.
        """
        table: Any = self.input_embeddings
        weight = getattr(table, "weight", None)
        if not torch.is_tensor(weight) or weight.ndim != 2:
            raise Missing(f"the model's input embedding is a {type(table).__name__}, no table")
        return weight

    @property
    def vocabulary(self) -> int:
        """Rows of W; without an embedding matrix, the configuration's value."""
        try:
            return self.embedding_table.shape[0]
        except Missing:
            return self.config.vocab_size

    @property
    def hidden(self) -> int:
        """The embedding's width; without an embedding matrix, the width of the blocks."""
        try:
            return self.embedding_table.shape[1]
        except Missing:
            return self.config.hidden_size

    @property
    def layers(self) -> int:
        """Blocks of the decoder, else of the encoder; 0 if the configuration does not say."""
        return getattr(self.config, "num_hidden_layers", 0)

    @property
    def is_encoder_decoder(self) -> bool:
        """Whether the model attends to an encoder's output; claims then examine the decoder.

        An encoder saved alone may have kept the configuration of the whole model.
        """
        return bool(self.model.config.is_encoder_decoder) and self.bound.decodes

    @cached_property
    def bound(self) -> Bound:
        """The roles of forward's arguments, as far as its signature tells."""
        if isinstance(self.model, Wrapped):  # which gives the ids their name
            return roles.bind(self.model.called).taking_ids
        return roles.bind(self.model.forward, type(self.model).__mro__)

    @property
    def is_of_the_library(self) -> bool:
        """Whether the model's class is one of transformers."""
        return type(self.model).__module__.startswith("transformers.")

    def takes(self, role: Role) -> bool:
        """Whether the model's forward names an argument for ``role``."""
        return role in self.bound

    @property
    def takes_more(self) -> bool:
        """Whether forward takes arguments that it does not name."""
        return self.bound.open

    @cached_property
    def ids_argument(self) -> str | None:
        """The name of forward's argument for the ids; None where it has none."""
        named = self.takes(Role.IDS)
        return self.bound[Role.IDS] if named else roles.ids_argument(self.model.forward)

    @cached_property
    def routes(self) -> bool:
        """Whether tokens are routed to experts, and the model can return the scores."""
        return configuration.routes(self.config) and self.takes(Role.ROUTER_LOGITS)

    @property
    def attention(self) -> str:
        """The attention implementation in use, in the text model."""
        return getattr(self.config, "_attn_implementation", None) or "eager"

    # -- what `models.subject.subject.Subject` adds -------------------------------------------

    @cached_property
    @abstractmethod
    def input_embeddings(self) -> Any:
        """The module that embeds the tokens."""

    @cached_property
    @abstractmethod
    def context(self) -> int | None:
        """The longest prompt that the positions allow, or None where there is no limit."""

    @cached_property
    @abstractmethod
    def shortest(self) -> int:
        """The shortest prompt that the model takes."""

    @cached_property
    @abstractmethod
    def cache_argument(self) -> str | None:
        """The name of the model's cache argument."""

    @cached_property
    @abstractmethod
    def positions_argument(self) -> str | None:
        """The name of the model's positions argument."""

    @cached_property
    @abstractmethod
    def blocks(self) -> nn.ModuleList:
        """The list of modules that contains the blocks."""

    @property
    @abstractmethod
    def oracle(self) -> Self:
        """The same model in float64."""

    @abstractmethod
    def content(self, numbers: Tensor) -> Tensor:
        """Integers mapped to ids that are text."""

    @abstractmethod
    def encode(self, ids: Tensor, mask: Tensor | None = None) -> Any:
        """The encoder's output for ``ids`` [batch, n]."""

    @abstractmethod
    def attending_by(self, implementation: str) -> AbstractContextManager[Self]:
        """Use another attention implementation within a block."""

    @abstractmethod
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
        **options: Any,
    ) -> Output:
        """Run the model once (`harness.models.subject.subject.Subject.__call__`)."""

    def rows(self, ids: Tensor | None = None, **arguments: Any) -> Rows:
        """`__call__` for its rows alone."""
        return self(ids, **arguments).rows
