"""Measures, in a process of its own, the memory that the parts of laws take on a large model."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from assay.benchmarks.peak import resident
from assay.fixtures import subjects
from assay.harness.models.loading.runs import Options
from assay.harness.models.machine import memory
from assay.harness.models.reference.float64 import reference_of
from assay.harness.operations import copies, differences, variants
from assay.harness.tests.support.toys import with_settings

TOKENS = 4
"""Of each of two prompts: a product in bfloat16 takes long on many processors."""

RESET = "5"
"""What makes Linux forget the peak of a process, in its file ``clear_refs``."""


def forget_peak() -> int:
    """Begin to measure, once freed memory is the system's again; the bytes that are resident."""
    memory.give_back()
    Path("/proc/self/clear_refs").write_text(RESET)
    return resident()


def main(model: str) -> None:
    """Print, as JSON, bytes above those of the loaded model, and of its weights."""
    torch.set_num_threads(1)
    subject = subjects.load(model, Options(dtype="bfloat16", oracle="stream"))
    variants.fits_twice = lambda _: False  # as on a machine of the model's size
    ids = subject.content(torch.arange(TOKENS).repeat(2, 1))
    reference_of(subject).rows(ids)  # looks at a longer prompt, once
    weights = [weight.numel() * weight.itemsize for weight in subject.model.parameters()]
    before = forget_peak()
    rows, exact = subject.rows(ids), reference_of(subject).rows(ids)
    off = float((rows["logits"].double() - exact["logits"]).abs().max())
    copied = variants.saved_and_loaded(subject)
    lost = max(differences.between(subject, copied).values())
    apart = copies.apart(subject, copied, ids)
    peak = resident() - before
    forget_peak()
    _ = reference_of(with_settings(subject, float64="copy"))
    with_copy = resident() - before
    measured = {"peak": peak, "with_copy": with_copy, "off": off, "lost": lost}
    measured |= {"apart": apart.distance.error - apart.allowed, "weights": sum(weights)}
    print(json.dumps(measured | {"largest": max(weights)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
