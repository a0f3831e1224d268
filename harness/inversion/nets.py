"""The fully connected networks of document 003, which inversion and walks compare models with.

A `Net` can replace a `Target`: its output is known, and its input is searched.  It reads embedded
tokens, to which it adds no positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from assay.harness.inversion.target import embedded
from assay.harness.models.capabilities import Missing
from assay.harness.models.machine import memory
from assay.harness.models.subject import Subject
from assay.harness.operations.choices import check_choice
from assay.harness.results.errors import BadInput

KINDS = {"expanding": (4.0, 4.0), "contracting": (4.0, 1.0), "narrowing": (0.25, 0.25)}
"""The widths of two layers in units of the input's: the document's `FCNet`, the same with its
last layer reduced to the input's width, and one with every layer narrower than the input.
"""

SHARE = 0.5
"""Share of the free memory for the weights of one network."""

DRAWN_AT_ONCE = 2**24
"""Weights that are drawn at a time, in float32 whatever their dtype."""


@dataclass(frozen=True, eq=False)
class Net:
    """Linear layers with GELU between them.

    ``weights`` and ``biases`` are torch's, [out, in] and [out].  With ``tokens`` n the network
    reads the n tokens of a prompt as one row of n × d numbers; without, each token by itself.
    """

    name: str
    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]
    tokens: int | None = None

    def __str__(self) -> str:
        return f"the {self.name} net"

    @property
    def depth(self) -> int:
        """The number of layers."""
        return len(self.weights)

    @property
    def hidden(self) -> int:
        """d, the width of one embedded token."""
        return self.weights[0].shape[1] // (self.tokens or 1)

    def check(self, subject: Subject) -> None:
        """Raise `BadInput` where the subject's embeddings have another width."""
        if subject.hidden != self.hidden:
            raise BadInput(f"{self}: takes {self.hidden} features and not {subject.hidden}")

    def features(self, subject: Subject) -> int:
        """The output's width for one token; in a flattened network, its share of the output."""
        return self.weights[-1].shape[0] // (self.tokens or 1)

    def shrunken(self, times: float) -> Net:
        """The same with its output multiplied by ``times``."""
        weights, biases = (
            (*parts[:-1], times * parts[-1]) for parts in (self.weights, self.biases)
        )
        return replace(self, weights=weights, biases=biases)

    def output(
        self,
        subject: Subject,
        ids: Tensor | None = None,
        *,
        embeddings: Tensor | None = None,
        **inputs: Any,
    ) -> Tensor:
        """The output for ``ids`` [rows, n] or ``embeddings`` [rows, n, d]: [rows, n, features]."""
        if embeddings is None:
            embeddings = embedded(subject)[ids]
        return self(embeddings)

    def __call__(self, embeddings: Tensor) -> Tensor:
        """Embeddings [rows, n, d] → [rows, n, features]."""
        rows, n, d = embeddings.shape
        if d != self.hidden or n != (self.tokens or n):
            shape = f"{self.tokens or 'any number of'} tokens × {self.hidden}"
            raise BadInput(f"{self}: takes {shape} and not {n} × {d}")
        x = embeddings.flatten(1) if self.tokens else embeddings
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = F.linear(F.gelu(x) if layer else x, weight, bias)
        return x.reshape(rows, n, -1)


def flattened(
    kind: str,
    tokens: int,
    hidden: int,
    generator: torch.Generator,
    like: Tensor | None = None,
) -> Net:
    """A network of one of the `KINDS` over prompts of ``tokens`` tokens."""
    check_choice("net", kind, KINDS)
    width = tokens * hidden
    # A whole number of features for each token.
    widths = [tokens * max(1, int(times * hidden)) for times in KINDS[kind]]
    return _drawn(kind, [width, *widths], generator, like, tokens)


def per_token(hidden: int, generator: torch.Generator, like: Tensor | None = None) -> Net:
    """A transformer's MLP, as in the walks: d → 4 d → d, token by token."""
    return _drawn("three-layer", [hidden, 4 * hidden, hidden], generator, like)


def _drawn(
    name: str,
    widths: Sequence[int],
    generator: torch.Generator,
    like: Tensor | None,
    tokens: int | None = None,
) -> Net:
    """Weights and biases as torch's Linear draws them: uniform, up to 1 / √(its inputs).

    They are drawn on the CPU, and get the dtype and device of ``like``.
    """
    like = torch.empty(0) if like is None else like
    numbers = sum((one + 1) * other for one, other in pairwise(widths))
    room = SHARE * memory.free(like.device)
    if numbers * like.element_size() > room:
        raise Missing(f"a network of {numbers:.2g} weights does not fit into memory")
    weights: list[Tensor] = []
    biases: list[Tensor] = []
    for inputs, outputs in pairwise(widths):
        reach = inputs**-0.5
        for shape, tensors in (((outputs, inputs), weights), ((outputs,), biases)):
            drawn = like.new_empty(shape)
            for some in drawn.split(max(1, DRAWN_AT_ONCE // inputs)):
                some.copy_(torch.empty(some.shape).uniform_(-reach, reach, generator=generator))
            tensors.append(drawn)
    return Net(name, tuple(weights), tuple(biases), tokens)
