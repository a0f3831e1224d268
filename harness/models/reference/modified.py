"""Modified copies of a model: what they share with it."""

from __future__ import annotations

from transformers import PreTrainedModel

from assay.harness.models.subject import Subject
from assay.harness.models.subject.provenance import Provenance


def of_same_code(
    subject: Subject, name: str, model: PreTrainedModel, provenance: Provenance | None = None
) -> Subject:
    """A subject of another model with the code of ``subject``, including injected faults.

    ``provenance`` is that of its weights; None where they are the subject's own.
    """
    if subject.injected is not None:
        subject.injected.sow(model)
    return Subject(
        *(name, model, subject.tokenizer),
        injected=subject.injected,
        settings=subject.settings,
        provenance=provenance or subject.provenance,
    )
