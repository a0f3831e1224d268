"""The recorded capabilities of a type of model."""

from __future__ import annotations

from dataclasses import dataclass

INDIVIDUAL = frozenset(
    {
        *("weights-in-memory", "tokenizer", "trained", "usual-weights"),
        *("tied-head", "full-rank-embedding"),
        "packed-positions",  # of a control only: no law goes with it
    }
)
"""Capabilities of one model, its weights and what came with it: never recorded of a type."""

OF_TYPE = frozenset(
    {
        *("generation", "lm-head", "encoder", "embedding-table", "inputs-embeds", "padding"),
        *("cached-generation", "cache", "chunks-beside-cache"),
        *("position-ids", "mask-4d", "kv-cache", "mask-beside-cache"),
    }
)
"""Capabilities that every model of a type has, however it is configured: what its code takes.

All others, such as whether positions are learned or relative, whether weights of attention sum to
one, or how long a context is, may be a matter of the configuration: they are asked of tiny models
only, which have their type's default one.
"""

OF_LAYERS = frozenset({"position-ids", "mask-4d", "kv-cache", "mask-beside-cache"})
"""Of those, what a type with recurrent layers has only where other layers are among them."""


@dataclass(frozen=True)
class Offer:
    """What is recorded of a type: ``names`` of capabilities in a ``version`` of transformers.

    ``type`` is ``KIND:MODEL_TYPE``; ``configured`` says that the model has a configuration of its
    own, and ``free`` which capabilities that may then be without.
    """

    type: str
    version: str
    names: frozenset[str]
    configured: bool = False
    free: frozenset[str] = frozenset()

    @property
    def demanded(self) -> frozenset[str]:
        """The capabilities that a model must have."""
        if not self.configured:
            return self.names - INDIVIDUAL
        layers = OF_LAYERS if "recurrence" in self.names else frozenset()
        return (self.names & OF_TYPE) - layers - self.free
