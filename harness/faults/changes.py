"""Whether a fault changes anything: one that does not is no fault, and no claim can notice it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from assay.harness import faults
from assay.harness.faults.catalogue import Fault
from assay.harness.models.capabilities import caches
from assay.harness.models.subject import Subject
from assay.harness.models.subject.rows import Rows

TEXT = "Ünïcode,  two spaces\nand 3 lines.\n"
"""What `changes` makes tokens of."""


def changes(fault: Fault, healthy: Subject) -> bool:
    """Whether a fault changes an output at all: of a batch, padded, in parts, or its tokens."""
    before = _outputs(healthy)
    with faults.injected(fault, healthy) as subject:
        after = _outputs(subject)
    return before.keys() != after.keys() or any(
        not torch.equal(before[name], after[name]) for name in before
    )


def _outputs(subject: Subject) -> dict[str, Tensor]:
    """Outputs in several ways; where a model does not run in one, a mark instead."""
    ids = subject.content(torch.arange(24, device=subject.device).reshape(2, 12) * 7)
    mask = torch.ones_like(ids)
    mask[0, :4] = 0
    ways: dict[str, Callable[[], Rows]] = {
        "batch": lambda: subject.rows(ids),
        "alone": lambda: subject.rows(ids[:1]),
        "padded": lambda: subject.rows(ids, mask=mask),
        "in parts": lambda: caches.decode(subject, ids, [8, 2, 1, 1]),
        "embeddings": lambda: subject.rows(embeddings=subject.input_embeddings(ids)),
    }
    outputs: dict[str, Tensor] = {}
    for way, run in ways.items():
        try:
            outputs |= {f"{way}, {n}": t.clone() for n, t in run().tensors.items()}
        except Exception as error:
            outputs[f"{way}: {type(error).__name__}"] = torch.zeros(0)
    if subject.tokenizer is not None:
        outputs["tokens"] = torch.tensor(subject.tokenizer(TEXT)["input_ids"])
    return outputs
