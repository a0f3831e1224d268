"""The prompts to invert: nine in ten of held-out text, the rest of random tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from assay.fixtures import texts
from assay.harness.checking.draws import Draws
from assay.harness.models import capabilities
from assay.harness.models.subject import Subject

TOKENS = 20
"""Tokens of every prompt by default."""


def fixed(subject: Subject, rows: int, tokens: int = TOKENS, seed: int = 0) -> Tensor:
    """The same prompts in every run, others for another ``seed``: ids [rows, tokens]."""
    draws = Draws(seed, "benchmarks", range(rows))
    plain = draws.only(lambda i: i % 10 == 9 or "tokenizer" not in capabilities.probe(subject))
    ids = torch.empty(rows, tokens, dtype=torch.long, device=subject.device)
    for some, draw in (
        (plain, texts.random),
        (draws.only(lambda i: i not in plain.numbers), texts.text),
    ):
        if len(some):
            ids[list(some)] = draw(subject, some, tokens)
    return ids
