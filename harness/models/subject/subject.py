"""One small interface to any model: ids or embeddings in, states and logits out.

It uses only public interfaces of transformers.  A feature that a model lacks is a missing
capability with a name (`harness.models.capabilities`).  The work is done in modules by topic,
which take the subject: `passes`, `blocks`, `vocabulary`, `lengths`, `configuration`, `trials`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from assay.harness.models.subject import (
    blocks,
    compat,
    configuration,
    lengths,
    passes,
    roles,
    vocabulary,
)
from assay.harness.models.subject.provenance import UNKNOWN, Provenance
from assay.harness.models.subject.roles import Bound, Role
from assay.harness.models.subject.rows import Output, Rows
from assay.harness.models.subject.settings import SubjectSettings
from assay.harness.results.errors import Missing

if TYPE_CHECKING:
    from assay.harness.models.subject.clock import ForwardClock
    from assay.harness.models.subject.offer import Offer


class Injected(Protocol):
    """An injected fault in a model, and in each further model that the same code runs."""

    @property
    def elsewhere(self) -> tuple[str, ...]:
        """A function, as ``module:name``, and arguments: it injects the fault where another
        process runs the code.
        """

    def sow(self, model: PreTrainedModel, loaded: bool = True) -> None:
        """Inject it into another model, which was ``loaded`` from files or made."""

    def undo(self) -> None:
        """Restore every model."""


@dataclass(eq=False)
class Subject:
    """The model under test.  A call runs without gradients unless ``embeddings`` require one.

    ``name`` as requested, ``model`` in evaluation mode with frozen parameters, ``digest`` of
    configuration and weights; ``injected`` is its injected fault, if any (`harness.faults`);
    ``settings`` is how it is run; ``offer`` the recorded capabilities of its type, or why there
    are none (`models.subject.offer`); ``provenance`` the origin of its weights; ``folder`` holds
    the safetensors that it, or its adapter, was loaded from, or is its GGUF file, if any.
    """

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase | None = None
    digest: str = ""
    injected: Injected | None = field(default=None, repr=False)
    settings: SubjectSettings = field(default_factory=SubjectSettings, repr=False)
    offer: Offer | str = ""
    provenance: Provenance = UNKNOWN
    folder: Path | None = field(default=None, repr=False)
    own_capabilities: dict[str, str | None] | None = field(default=None, repr=False)
    """Of a subject that is no torch model: all that it has, with None, or lacks, and why."""
    reference: Subject | None = field(default=None, init=False, repr=False)
    """The float64 reference, once a claim has used it (`models.reference.float64`)."""
    clocks: list[ForwardClock] = field(default_factory=list, init=False, repr=False)
    """The clocks that now time its passes, and those of the float64 reference once it is built."""

    # -- what it is ---------------------------------------------------------------------------

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

    @cached_property
    def input_embeddings(self) -> Any:
        """The module that embeds the tokens: of an encoder-decoder, the decoder's.

        A model with two such modules names the encoder's; watching a pass finds the decoder's.
        """
        return vocabulary.embeddings(self)

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
    def attention(self) -> str:
        """The attention implementation in use, in the text model."""
        return getattr(self.config, "_attn_implementation", None) or "eager"

    @property
    def is_encoder_decoder(self) -> bool:
        """Whether the model attends to an encoder's output; claims then examine the decoder.

        An encoder saved alone may have kept the configuration of the whole model.
        """
        return bool(self.model.config.is_encoder_decoder) and self.bound.decodes

    @cached_property
    def context(self) -> int | None:
        """The longest prompt that the positions allow, or None where there is no limit."""
        return lengths.context(self)

    @property
    def window(self) -> int | None:
        """The longest prompt within every layer's window or chunk; None: no limit."""
        return configuration.window(self.config)

    @cached_property
    def shortest(self) -> int:
        """The shortest prompt that an encoder takes: some pool their rows and need a few.

        1 for every model that generates: one that rejects a prompt breaks its laws.
        """
        return lengths.shortest(self)

    # -- its forward's arguments --------------------------------------------------------------

    @cached_property
    def bound(self) -> Bound:
        """The roles of forward's arguments, as far as its signature tells."""
        model: Any = self.model
        if compat.is_wrapped(model):  # which gives the ids their name
            return roles.bind(model.called).taking_ids
        return roles.bind(model.forward, type(model).__mro__)

    def takes(self, role: Role) -> bool:
        """Whether the model's forward names an argument for ``role``."""
        return role in self.bound

    @cached_property
    def positions_argument(self) -> str | None:
        """The name of the model's positions argument: of an encoder-decoder, the decoder's.

        Some models do not name it and pass it on to the part that does.
        """
        name = self.bound[Role.POSITIONS]
        return name if self.takes(Role.POSITIONS) or passes.passes_on(self, name) else None

    @cached_property
    def cache_argument(self) -> str | None:
        """The name of the model's cache argument.

        By its name or type; where these leave a doubt, passes are tried (`trials`).  A model that
        generates and takes ``**kwargs`` may have the cache among those.
        """
        bound = self.bound
        hidden = Role.CACHE not in bound and bound.open and compat.can_generate(self.model)
        if bound.certain and not hidden:
            return bound.names.get(Role.CACHE)
        from assay.harness.models.subject import trials

        names = (*bound.caches, *(roles.SPELLINGS[Role.CACHE] if hidden else ()))
        return trials.cache_argument(self, names)

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
        **options: Any,
    ) -> Output:
        """Run the model once.

        ``ids`` [batch, n] or ``embeddings`` [batch, n, hidden]; ``positions`` [n] or [batch, n];
        ``mask`` 2-D [batch, n] of 0 and 1 (with a cache: over past and present) or additive 4-D
        (`models.subject.masks`); ``cache`` holds the past to continue; ``keep`` returns the cache;
        ``states`` returns the hidden states (``state 0`` is the embedding, ``state L`` is after
        the final norm in most models).  ``options`` go to the model; those named by a `Role` get
        the name that its argument has there.  An encoder-decoder gets a fixed prompt's encoder
        output unless they contain one (`Role.ENCODED`).
        """
        request = passes.Pass(ids, embeddings, positions, mask, cache, keep, states, options)
        return passes.run(self, request)

    def rows(self, ids: Tensor | None = None, **arguments: Any) -> Rows:
        """`__call__` for its rows alone."""
        return self(ids, **arguments).rows

    def encode(self, ids: Tensor, mask: Tensor | None = None) -> Any:
        """The encoder's output for ``ids`` under ``mask`` (1 for content), [batch, n] both."""
        encoder = self.model.get_encoder()
        masked = {} if mask is None else {roles.bind(encoder.forward)[Role.MASK]: mask}
        with torch.no_grad(), passes.uncompiled(self):
            return encoder(ids, **masked)

    @cached_property
    def blocks(self) -> nn.ModuleList:
        """The list of modules that contains the blocks, one for each layer.

        A model that shares one block among its layers has a shorter list.  Raises LookupError
        where there is no such list.
        """
        return blocks.find(self)

    def block_output(self, depth: int, ids: Tensor | None = None, **arguments: Any) -> Tensor:
        """O_k: the output of block ``depth`` [batch, n, hidden], before any final norm.

        Runs the model's own forward up to block ``depth``: the later ones do not run.  Depth 0 is
        the first block's input.  Raises LookupError where the block is never called as a module,
        and `Missing` where its output is not one row for each token.
        """
        return blocks.output(self, depth, ids, **arguments)

    @contextmanager
    def attending_by(self, implementation: str) -> Iterator[Subject]:
        """Use another attention implementation within a block."""
        usual = compat.settings(self.model, compat.ATTENTION)
        try:
            compat.set_attention(self.model, implementation)  # may set some parts, then raise
            yield self
        finally:
            compat.restore(usual, compat.ATTENTION)

    # -- its tokens ---------------------------------------------------------------------------

    def content(self, numbers: Tensor) -> Tensor:
        """Integers mapped to content: ids in the vocabulary that are text.

        Some models skip the padding's id when they count positions, and replace other ids by an
        image or a sound.
        """
        ids, next_text = numbers % self.vocabulary, vocabulary.next_text(self)
        return ids if next_text is None else next_text[ids]

    def tokens(self, ids: list[int]) -> list[str]:
        """The ids as token strings; as numbers where there is no tokenizer."""
        if self.tokenizer is None:
            return [f"<{i}>" for i in ids]
        return [str(self.tokenizer.convert_ids_to_tokens(i)) for i in ids]
