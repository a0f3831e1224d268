"""One small interface to any model: ids or embeddings in, states and logits out.

Only public interfaces of transformers are used.  What a model does not offer is a missing
capability with a name (`harness.models.capabilities`).  How it is done is in modules by topic,
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

from assay.harness.models import (
    blocks,
    compat,
    configuration,
    float64,
    lengths,
    passes,
    vocabulary,
)
from assay.harness.models.core import Core, Output, Pass
from assay.harness.models.encoders import ENCODER_PROMPT
from assay.harness.models.provenance import Provenance
from assay.harness.results.errors import Missing

if TYPE_CHECKING:
    from assay.harness.models.loading import Loaded

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
        """The module that the tokens are looked up in: of an encoder-decoder, the decoder's.

        A model with two names the encoder's: then the decoder's is found by watching.
        """
        return vocabulary.embeddings(self)

    @property
    def heads(self) -> int:
        """Heads of attention in a layer, at most; 1 where the configuration does not say."""
        return configuration.heads(self.config)

    @cached_property
    def context(self) -> int | None:
        """The longest prompt that the positions allow, or None where there is no limit."""
        return lengths.context(self)

    @cached_property
    def shortest(self) -> int:
        """The shortest prompt that an encoder takes: some pool their rows and need a few.

        1 for every model that generates: one that refuses a prompt breaks its laws.
        """
        return lengths.shortest(self)

    @property
    def window(self) -> int | None:
        """The longest prompt that every layer sees whole (sliding windows, chunks); None: any."""
        return configuration.window(self.config)

    @cached_property
    def positions_argument(self) -> str | None:
        """The name under which the model takes positions: of an encoder-decoder, the decoder's.

        Some wholes do not name it and pass it on to the part that does.
        """
        name = "decoder_position_ids" if self.is_encoder_decoder else "position_ids"
        return name if self.accepts(name) or passes.passes_on(self, name) else None

    def content(self, numbers: Tensor) -> Tensor:
        """Whole numbers folded into the vocabulary, past ids that are no text: content.

        Some models leave whatever has the padding's id out of their positions, and put an image
        or a sound in the place of others.
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
        **more: Any,
    ) -> Output:
        """Run the model once.

        ``ids`` [batch, n] or ``embeddings`` [batch, n, hidden]; ``positions`` [n] or [batch, n];
        ``mask`` 2-D [batch, n] of 0 and 1 (with a cache: over past and present) or additive 4-D
        (`harness.models.masks`); ``cache`` goes on from a past; ``keep`` returns the cache;
        ``states`` asks for the hidden states (``state 0`` is the embedding, ``state L`` is after
        the final norm in most models).  ``more`` goes to the model as it is; an encoder-decoder is
        given a fixed prompt's ``encoder_outputs`` unless they are in it.
        """
        asked = Pass(ids, embeddings, positions, mask, cache, keep, states, more)
        return passes.run(self, asked)

    def encode(self, ids: Tensor, mask: Tensor | None = None) -> Any:
        """What the encoder makes of ``ids`` under ``mask`` (1 for content), [batch, n] both."""
        masked = {} if mask is None else {"attention_mask": mask}
        with torch.no_grad(), passes.uncompiled(self):
            return self.model.get_encoder()(ids, **masked)

    # -- its blocks ---------------------------------------------------------------------------

    @cached_property
    def blocks(self) -> nn.ModuleList:
        """The list of modules that holds the blocks: as long as the model is deep.

        Raises LookupError where no such list is found.  A model that shares one block among its
        layers has a shorter list.
        """
        return blocks.find(self)

    def block_output(self, depth: int, ids: Tensor | None = None, **arguments: Any) -> Tensor:
        """O_k: the output of block ``depth`` [batch, n, hidden], before any final norm.

        Runs the model's own forward and leaves it after block ``depth``: the later ones do not
        run.  Depth 0 is the first block's input.  Raises LookupError where the block is never run
        as such, and `Missing` where it gives something else than a row for each token.
        """
        return blocks.output(self, depth, ids, **arguments)

    def head_input(self, ids: Tensor | None = None, **arguments: Any) -> Tensor:
        """What the output embedding is given: [batch, n, hidden], past the final norm.

        Raises LookupError where there is no output embedding.
        """
        return blocks.head_input(self, ids, **arguments)

    def attentions(self, ids: Tensor) -> list[Tensor]:
        """Weights of self-attention, [batch, heads, n, n] a layer, written out (eager).

        Empty where the model gives none.  Raises what the model raises.
        """
        return passes.attentions(self, ids)

    # -- its twins ----------------------------------------------------------------------------

    @property
    def oracle(self) -> Subject:
        """The same model in float64, parameter for parameter; itself where it already is.

        The first claim that asks builds it.  Raises `Missing` where the model does not run so:
        then nothing tells what is right.
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
            model, drawn_as = float64.twin(self)
        name = f"{self.name} in float64"
        oracle = Subject(
            name, model, drawn_as=drawn_as, attends=self.attends, provenance=self.provenance
        )
        for clock in self.clocks:
            clock.watch(model)
        try:
            float64.require_runs(oracle, self)
        except Missing as missing:
            self._no_reference = str(missing)
            raise
        return oracle

    def of_same_code(
        self, name: str, model: PreTrainedModel, provenance: Provenance | None = None
    ) -> Subject:
        """A subject of another model that the same code runs, faults in it included.

        ``provenance`` of its weights; None where they are the subject's own.
        """
        if self.planted is not None:
            self.planted.sow(model)
        return Subject(
            *(name, model, self.tokenizer),
            planted=self.planted,
            attends=self.attends,
            provenance=provenance or self.provenance,
        )

    @contextmanager
    def attending_by(self, implementation: str) -> Iterator[Subject]:
        """The subject with another attention implementation, for the length of a block."""
        usual = compat.settings(self.model, compat.ATTENTION)
        try:
            compat.set_attention(self.model, implementation)  # refused, it may be set in part
            yield self
        finally:
            compat.restore(usual, compat.ATTENTION)

    def tokens(self, ids: list[int]) -> list[str]:
        """The ids as token strings; the numbers themselves where there is no tokenizer."""
        if self.tokenizer is None:
            return [f"<{i}>" for i in ids]
        return [str(self.tokenizer.convert_ids_to_tokens(i)) for i in ids]
