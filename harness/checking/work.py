"""What an example of a law takes, by which laws are ordered."""

from __future__ import annotations

from enum import IntEnum

from assay.harness.checking.claim import Claim


class Work(IntEnum):
    """What an example of a law takes, from the cheapest on: laws come in this order."""

    TEXT = 0
    """No pass: tokenizers and chats."""
    PASSES = 1
    """Passes over short prompts."""
    GENERATION = 2
    """Passes for each token that is generated."""
    COPIES = 3
    """Gradients, or changed copies of the model."""
    VOCABULARY = 4
    """Products with every token's embedding."""


WORK = {
    Work.TEXT: (
        *("tokenizer", "fast-tokenizer", "tokenizer-file", "lossless-tokens", "stated-tokens"),
        *("padding-token", "chat-template", "continued-messages", "sanitised-chats"),
    ),
    Work.GENERATION: (
        *("generation", "cached-generation", "continued-generation", "chunked-generation"),
        "assisted-generation",
    ),
    Work.COPIES: ("saving", "parameter-gradients", "trainer", "adapters", "own-adapter"),
}
"""The capabilities that say what a law takes which needs one of them."""


def of(claim: Claim) -> Work:
    """What an example of the claim takes: as it declares, or as its needs say; else passes."""
    if claim.work is not None:
        return claim.work
    works = [work for work, names in WORK.items() if not set(names).isdisjoint(claim.needs)]
    return max(works, default=Work.PASSES)
