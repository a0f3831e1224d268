"""The subject `toy`: heads, networks and toys that Assay builds itself.

Some claims of the documents are about networks built for the purpose: a single attention
head, three tokens, a fully connected network.  They say nothing about the model of a run.
Such a claim is declared with ``toy=True``.  It runs once in a run with an embedded reference, or
alone, and its result is that of the subject ``toy``: it has the same result with every model.
Where it needs embeddings, tokens or trained models, it takes those of the embedded reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from assay.harness.results.specs import ModelKind, ModelSpec


def is_toy(subject: str) -> bool:
    """Whether a subject is the toys, with an injected fault or without."""
    return ModelSpec.recorded(subject).kind is ModelKind.TOY


def spec_for(models: Sequence[str]) -> str:
    """The toys' name in a run of ``models``, with the fault that all of them share, if any."""
    faults = {ModelSpec.recorded(model).fault for model in models}
    return str(ModelSpec(ModelKind.TOY, fault=faults.pop() if len(faults) == 1 else None))


def run_with(models: Iterable[str]) -> bool:
    """Whether claims about the toys run in a run of ``models``."""
    kinds = {ModelSpec.recorded(model).kind for model in models}
    return not kinds.isdisjoint({ModelKind.TOY, ModelKind.REFERENCE})


def subject_of(nodeid: str, subjects: Iterable[str]) -> str:
    """The subject of a test by its node id; empty if it has none of ``subjects``.

    The subject is the first of a test's parameters (`harness.plugin.hooks.pytest_generate_tests`).
    """
    drawn = nodeid.partition("[")[2].removesuffix("]")
    longest = sorted(subjects, key=len, reverse=True)
    return next((name for name in longest if f"{drawn}-".startswith(f"{name}-")), "")
