"""Decides whether a model can be checked, and rejects it in one line before any claim runs."""

from __future__ import annotations

from contextlib import suppress

import torch

from assay.harness.models.machine.shortage import ENDS, shortage
from assay.harness.models.subject import Subject, meant
from assay.harness.models.subject.configuration import LEAST_TOKENS
from assay.harness.results.errors import BadInput, Missing, brief


def admit(subject: Subject) -> Subject:
    """Return ``subject``; raises `BadInput` where no claim, or no important one, would apply."""
    if (meaning := meant.direction(subject)).ways is None:  # then C1 would not apply
        raise BadInput(f"{subject.name}: {meaning.why}")
    with suppress(AttributeError):  # some configurations do not say how large it is
        if (size := subject.vocabulary) < LEAST_TOKENS:
            raise BadInput(
                f"{subject.name}: has a vocabulary of {size}; {LEAST_TOKENS} are needed"
            )
    _refuse_unreadable(subject)
    if meaning.ways == meant.CAUSAL and subject.model.get_output_embeddings() is not None:
        _refuse_lost_rows(subject)
    return subject


def _refuse_unreadable(subject: Subject) -> None:
    """Raise `BadInput` where the model cannot read a prompt: some versions build such models."""
    try:
        subject(_prompt(subject, subject.shortest))
    except ENDS as error:
        why = shortage(error) or brief(error)
        raise BadInput(f"{subject.name}: cannot run a prompt ({why})") from error


def _refuse_lost_rows(subject: Subject) -> None:
    """Raise `BadInput` where a causal language model does not return logits for each token."""
    try:
        subject.rows(_prompt(subject, max(LEAST_TOKENS, subject.shortest)), states=False)
    except Missing as missing:
        raise BadInput(f"{subject.name}: {missing}; a causal language model has to") from missing
    except ENDS as error:
        why = shortage(error) or brief(error)
        raise BadInput(
            f"{subject.name}: cannot run a prompt of {LEAST_TOKENS} tokens ({why})"
        ) from error


def _prompt(subject: Subject, n: int) -> torch.Tensor:
    return subject.content(torch.arange(n, device=subject.device)[None])
