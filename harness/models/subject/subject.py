"""One small interface to any model: ids or embeddings in, states and logits out.

It uses only public interfaces of transformers.  A feature that a model lacks is a missing
capability with a name (`harness.models.capabilities`).  The work is done in modules by topic,
which take the subject: `passes`, `blocks`, `vocabulary`, `lengths`, `configuration`, `float64`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from assay.harness.models.reference import float64
from assay.harness.models.subject import (
    blocks,
    compat,
    configuration,
    lengths,
    passes,
    trials,
    vocabulary,
)
from assay.harness.models.subject.core import Core, Output, Pass
from assay.harness.models.subject.encoders import ENCODER_PROMPT
from assay.harness.models.subject.provenance import Provenance
from assay.harness.models.subject.roles import Role, bind
from assay.harness.results.errors import Missing

if TYPE_CHECKING:
    from assay.harness.models.loading.loading import Loaded

__all__ = ["ENCODER_PROMPT", "Output", "Subject"]


@dataclass(eq=False)
class Subject(Core):
    """The model under test.  A call runs without gradients unless ``embeddings`` require one."""

    known_reference: Subject | None = field(default=None, init=False, repr=False)

    @classmethod
    def of(cls, loaded: Loaded) -> Subject:
        """The subject of a loaded model."""
        return cls(loaded.name, loaded.model, loaded.tokenizer, loaded.digest)

    # -- what it is ---------------------------------------------------------------------------

    @cached_property
    def input_embeddings(self) -> Any:
        """The module that embeds the tokens: of an encoder-decoder, the decoder's.

        A model with two such modules names the encoder's; watching a pass finds the decoder's.
        """
        return vocabulary.embeddings(self)

    @property
    def heads(self) -> int:
        """The most attention heads in a layer; 1 where the configuration does not say."""
        return configuration.heads(self.config)

    @cached_property
    def context(self) -> int | None:
        """The longest prompt that the positions allow, or None where there is no limit."""
        return lengths.context(self)

    @cached_property
    def shortest(self) -> int:
        """The shortest prompt that an encoder takes: some pool their rows and need a few.

        1 for every model that generates: one that rejects a prompt breaks its laws.
        """
        return lengths.shortest(self)

    @property
    def window(self) -> int | None:
        """The longest prompt within every layer's window or chunk; None: no limit."""
        return configuration.window(self.config)

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

        By its name or type; where these leave a doubt, passes are tried (`trials`).
        """
        return trials.cache_argument(self)

    def content(self, numbers: Tensor) -> Tensor:
        """Integers mapped to content: ids in the vocabulary that are text.

        Some models skip the padding's id when they count positions, and replace other ids by an
        image or a sound.
        """
        ids, next_text = numbers % self.vocabulary, vocabulary.next_text(self)
        return ids if next_text is None else next_text[ids]

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
        request = Pass(ids, embeddings, positions, mask, cache, keep, states, options)
        return passes.run(self, request)

    def encode(self, ids: Tensor, mask: Tensor | None = None) -> Any:
        """The encoder's output for ``ids`` under ``mask`` (1 for content), [batch, n] both."""
        encoder = self.model.get_encoder()
        masked = {} if mask is None else {bind(encoder.forward)[Role.MASK]: mask}
        with torch.no_grad(), passes.uncompiled(self):
            return encoder(ids, **masked)

    # -- its blocks ---------------------------------------------------------------------------

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
        self._find_arguments()
        return blocks.output(self, depth, ids, **arguments)

    def head_input(self, ids: Tensor | None = None, **arguments: Any) -> Tensor:
        """The output embedding's input: [batch, n, hidden], after the final norm.

        Raises LookupError where there is no output embedding.
        """
        self._find_arguments()
        return blocks.head_input(self, ids, **arguments)

    def _find_arguments(self) -> None:
        """Find the arguments that are found by passes, before hooks end a pass early."""
        _ = self.positions_argument, self.cache_argument

    def attentions(self, ids: Tensor) -> list[Tensor]:
        """Self-attention weights (eager), [batch, heads, n, n] for each layer.

        Empty where the model returns none.  Raises what the model raises.
        """
        return passes.attentions(self, ids)

    # -- its copies ---------------------------------------------------------------------------

    @property
    def oracle(self) -> Subject:
        """The same model in float64, parameter for parameter; itself where it already is.

        The first use builds it.  Raises `Missing` where the model does not run in float64: there
        is no reference then.
        """
        if self.dtype == torch.float64:
            return self
        if self.known_reference is None:
            self.known_reference = self._in_float64()
        return self.known_reference

    def _in_float64(self) -> Subject:
        if self._no_reference:
            raise Missing(self._no_reference)
        with ExitStack() as pauses:
            for clock in self.clocks:
                pauses.enter_context(clock.paused())
            model = float64.float64_copy(self)
        name = f"{self.name} in float64"
        oracle = Subject(name, model, attends=self.attends, provenance=self.provenance)
        oracle.home = self.device
        for clock in self.clocks:
            clock.watch(model)
        try:
            float64.require_runs(oracle, self)
        except Missing as missing:
            self._no_reference = str(missing)
            raise
        if float64.draws(oracle):
            oracle.drawn_as = self.dtype
        return oracle

    def of_same_code(
        self, name: str, model: PreTrainedModel, provenance: Provenance | None = None
    ) -> Subject:
        """A subject of another model with the same code, including injected faults.

        ``provenance`` is that of its weights; None where they are the subject's own.
        """
        if self.injected is not None:
            self.injected.sow(model)
        return Subject(
            *(name, model, self.tokenizer),
            injected=self.injected,
            attends=self.attends,
            oracle_way=float64.way_of_copies(self),
            bitwise=self.bitwise,
            provenance=provenance or self.provenance,
        )

    @contextmanager
    def attending_by(self, implementation: str) -> Iterator[Subject]:
        """Use another attention implementation within a block."""
        usual = compat.settings(self.model, compat.ATTENTION)
        try:
            compat.set_attention(self.model, implementation)  # may set some parts, then raise
            yield self
        finally:
            compat.restore(usual, compat.ATTENTION)

    def tokens(self, ids: list[int]) -> list[str]:
        """The ids as token strings; as numbers where there is no tokenizer."""
        if self.tokenizer is None:
            return [f"<{i}>" for i in ids]
        return [str(self.tokenizer.convert_ids_to_tokens(i)) for i in ids]
