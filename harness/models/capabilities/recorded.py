"""Compares a model with the recorded capabilities of its type: one that lacks any is broken.

A law does not apply to a model without the capability that it needs, so a model that ignores an
input that its type takes would escape every law about that input.  The capabilities of each type
in a version of transformers are therefore recorded (`fixtures.families.offers`), and a model that
lacks one fails the run by the capability's name.
"""

from __future__ import annotations

from assay.harness.models.capabilities.registry import probe
from assay.harness.models.clock import Braked
from assay.harness.models.offer import Offer
from assay.harness.models.shortage import ENDS, shortage
from assay.harness.models.subject import Subject
from assay.harness.results.errors import brief

CAPABILITY = "capability"
"""In place of a claim's number, for a fault that is detected by a missing capability."""


def lacking(subject: Subject) -> dict[str, str]:
    """The capabilities that the subject's type offers and it lacks, each with the reason."""
    if not isinstance(subject.offer, Offer):
        return {}
    reasons = {name: _lack(subject, name) for name in sorted(subject.offer.demanded)}
    return {name: why for name, why in reasons.items() if why is not None}


def _lack(subject: Subject, name: str) -> str | None:
    """Why the subject lacks a capability; None if it has it or this run cannot tell."""
    known = probe(subject)
    try:
        why = known.why_missing(name)
        return None if name in known.unavailable else why
    except Braked:
        return None
    except ENDS as error:
        return None if shortage(error) else f"not found out: {brief(error)}"
