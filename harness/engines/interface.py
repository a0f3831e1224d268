"""What an engine is: an implementation of a model of which ids and scores are all that is seen.

A class of a third party extends `Engine` and registers itself in the group of entry points
``assay.engines`` (docs/own-engine.md).  It implements what it can; the rest it lacks, and the
claims that need it do not apply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Ids = list[int]
Chat = list[dict[str, str]]
"""Messages with ``role`` and ``content``."""


@dataclass(frozen=True)
class Scores:
    """Scores of the next token at successive positions of one request.

    Row i of ``values`` [rows, k] follows the ids up to and including position ``first`` + i.
    Without ``tokens`` a row has the whole vocabulary, as log-probabilities or logits.  With
    ``tokens`` [rows, k] it has log-probabilities, in nats, of those ids alone, such as the best k.
    Both are arrays of numpy, tensors or nested lists.
    """

    values: Any
    tokens: Any = None
    first: int = 0


@dataclass(frozen=True)
class Sampling:
    """How to choose ``tokens`` tokens; every other default leaves the distribution as it is.

    A ``temperature`` of 0 takes the most probable token.  The order is that of transformers:
    repetition penalty (over prompt and text), temperature, ``top_k`` (0: all), ``top_p``.  No
    token ends the text early.
    """

    tokens: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    seed: int = 0


@dataclass(frozen=True)
class Generated:
    """The new ``ids`` of one request, with a row of ``scores`` for each, or None.

    ``scores.first`` is the position before the first new token.  Every row has the chosen token.
    Fewer ids than were requested are taken as a text that ended early.
    """

    ids: Ids
    scores: Scores | None = None


RAW, PROCESSED = "raw", "processed"


class Engine:
    """A model as it is served.  Raise `BadInput` (`assay.BadInput`) where it cannot answer."""

    name = "engine"
    """What reports call it, with its version: ``llama.cpp 0.3.1``."""
    vocabulary = 0
    """Rows of the embedding, or how many ids it takes; required."""
    context: int | None = None
    """Most tokens of a request with its answer."""
    longest = 32
    """Tokens of the longest prompt that a usual example sends; lower it where scores cost much."""
    special: frozenset[int] = frozenset()
    """Ids that stand for no text, such as those of images: no prompt has them."""
    dtype = "float32"
    """The type in which it computes: float64, float32, bfloat16 or float16."""
    stored = ""
    """The type of its weights, where that is another one: ``int8`` (by row), ``q4_k_m``."""
    activations = ""
    """What inputs of matrix products are rounded to: ``int8`` by row, ``q8_0`` in blocks of 32,
    ``q8_k`` in blocks of 256, or ''."""
    cache = ""
    """The type of its cache, where that is another one: ``float16``, ``q8_0``, ``q4_0``."""
    queries = ""
    """What queries are rounded to where they meet the cache: ``float16``, ``q8_0``, or ''."""
    rotated = False
    """Whether the cache has keys and values rotated by Hadamard matrices, as in llama.cpp."""
    routed = False
    """Whether tokens are routed to experts, which in few bits may choose others by near-ties."""
    weights = ""
    """What Assay can load that has the same stored weights: a folder, or a GGUF file."""
    files: Sequence[str] = ()
    """Files and folders that it serves; evidence is of their content (usually WHAT's path)."""
    identity = ""
    """What else tells it from others of its name: a server's revision of the model."""
    reports = RAW
    """Of which distribution `generate` reports scores: ``raw``, or ``processed`` by sampling."""
    lacks: Mapping[str, str] = {}
    """What it cannot do, with the reason, by the names of `CAPABILITIES`."""

    def scores(self, requests: Sequence[Ids], *, cold: bool = True) -> Sequence[Scores]:
        """The scores of each of ``requests``, which are sent together.

        ``cold`` requests neither read a prefix cache nor rely on one.  Others may: they return the
        rows that are computed, at least the last one.
        """
        raise NotImplementedError

    def generate(self, requests: Sequence[Ids], sampling: Sampling) -> Sequence[Generated]:
        """Continue each of ``requests``, which are sent together."""
        raise NotImplementedError

    def tokenize(self, text: str) -> Ids:
        """The ids of a text, with those that are added to every text."""
        raise NotImplementedError

    def chat(self, messages: Chat) -> Ids:
        """The ids that a chat becomes, with the prompt for an answer."""
        raise NotImplementedError

    def restart(self) -> None:
        """Begin another life of the process that computes, with nothing cached."""
        raise NotImplementedError

    def close(self) -> None:
        """Free what it holds."""


CAPABILITIES = {
    "engine-scores": "scores",
    "engine-prefix-cache": "scores",
    "engine-batches": "scores",
    "engine-generation": "generate",
    "engine-sampling": "generate",
    "engine-generated-scores": "generate",
    "engine-tokens": "tokenize",
    "engine-chats": "chat",
    "engine-restart": "restart",
}
"""The capabilities of an engine by name, and the method that each needs."""


def parts(what: str) -> tuple[str, dict[str, str]]:
    """``PATH,NAME=VALUE,…`` in parts: how the command line gives an engine its options."""
    path, *options = what.split(",")
    return path, dict(each.partition("=")[::2] for each in options)
