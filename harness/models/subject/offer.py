"""The capabilities that a model is expected to have: by its type's record, or by its class."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Basis(StrEnum):
    """What says which capabilities a model has."""

    RECORD = "record"  # of the installed version of transformers
    EARLIER = "earlier version"
    LATER = "later version"
    CLASS = "class"


INDIVIDUAL = frozenset(
    {
        *(
            "weights-in-memory",
            "files",
            "gguf-file",
            "own-adapter",
            "tokenizer",
            "trained",
            "usual-weights",
        ),
        *("tied-head", "full-rank-embedding"),
        *("scaled-rotation", "switched-rotation", "two-rotations", "rotation-made-again"),
        *("fast-tokenizer", "tokenizer-file", "stated-tokens", "padding-token", "lossless-tokens"),
        *("chat-template", "continued-messages", "sanitised-chats"),
        "packed-positions",  # only a control needs it: no law depends on it
    }
)
"""Capabilities of one model, its weights and its files: never recorded for a type."""

SERVED = "served"
"""Recorded of a type whose requests the library's server answers; to ask a model takes a second,
so only the law about it does.
"""

OF_TYPE = frozenset(
    {
        *("generation", "lm-head", "logits", "encoder"),
        *("embedding-table", "inputs-embeds", "padding", "blocks", "switchable-attention"),
        *("cached-generation", "cache", "chunks-beside-cache"),
        *("loss", "logits-to-keep", "gradient-checkpointing", "packing"),
        *("position-ids", "positions-argument", "mask-4d", "kv-cache", "mask-beside-cache"),
    }
)
"""Capabilities that every model of a type has, in any configuration: the inputs of its code.

All others, such as whether positions are learned or relative, whether attention weights sum to
one, or how long a context is, may depend on the configuration: only tiny models, which have their
type's default one, must have them.
"""

OF_LAYERS = frozenset({"position-ids", "mask-4d", "kv-cache", "mask-beside-cache"})
"""Those that a type with recurrent layers has only if it also has other layers."""


@dataclass(frozen=True)
class Offer:
    """What a model is expected to have: ``names`` of capabilities.

    By the record of its ``type``, ``KIND:MODEL_TYPE``, in a ``version`` of transformers; or by its
    ``basis`` alone, where ``type`` is a class.  ``configured`` says that the model has a
    configuration of its own, which may then lack the capabilities ``free``.  ``form`` is the tiny
    model of the type, such as ``tiny:t5``; empty for one that is tiny itself.
    """

    type: str
    version: str
    names: frozenset[str]
    configured: bool = False
    free: frozenset[str] = frozenset()
    basis: Basis = Basis.RECORD
    form: str = ""

    @property
    def demanded(self) -> frozenset[str]:
        """The capabilities that a model must have."""
        if self.basis is Basis.CLASS:
            return self.names
        if not self.configured:
            return self.names - INDIVIDUAL - {SERVED}
        layers = OF_LAYERS if "recurrence" in self.names else frozenset()
        return (self.names & OF_TYPE) - layers - self.free
