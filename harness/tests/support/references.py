"""Miniatures of the embedded reference: recipes, documents, weights."""

from __future__ import annotations

import io

import pytest
import torch
from rich.console import Console
from transformers import PreTrainedModel

from assay.fixtures.reference.__main__ import BAD_INPUT
from assay.fixtures.reference.progress import Meter
from assay.fixtures.reference.recipe import RECIPES, miniature
from assay.fixtures.reference.text import SHORT, Document

MINIATURES = {name: miniature(recipe) for name, recipe in RECIPES.items()}
LADDER = ("small", "medium", "large")
TOKENS = torch.arange(3, 1003, dtype=torch.int32)


def silent() -> Meter:
    return Meter(Console(file=io.StringIO()))


def documents() -> list[Document]:
    """400 documents of a long paragraph of their own; every other one has one in common too."""
    own = "This long paragraph stands in document number {} and nowhere else at all. "
    common = "This paragraph stands in many documents, which is how docstrings are copied around."
    return [
        Document(f"package/module_{i}.py", (3 * own.format(i), *[common] * (i % 2)))
        for i in range(400)
    ]


def long_paragraphs(side: list[Document]) -> set[str]:
    return {p for document in side for p in document.paragraphs if len(p) >= SHORT}


def weights_of(model: PreTrainedModel) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def refused(code: int, capsys: pytest.CaptureFixture[str]) -> str:
    """The one line of a command that was refused."""
    said = capsys.readouterr().err.strip().splitlines()
    assert code == BAD_INPUT
    assert said[-1].startswith("error: ")
    assert not any("Traceback" in line for line in said)
    return said[-1]
