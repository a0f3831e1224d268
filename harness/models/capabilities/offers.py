"""Checks a model against the recorded capabilities of its type: one that lacks any is broken.

A law does not apply to a model without the capability that it needs, so a model that ignores an
input that its type takes would take every law about that input away with it.  What each type
offers in a version of transformers is therefore recorded (`fixtures.families.offers`), and a
model that offers less fails the run by the capability's name.
"""

from __future__ import annotations

from assay.harness.models.capabilities.registry import probe
from assay.harness.models.clock import Braked
from assay.harness.models.offer import Offer
from assay.harness.models.shortage import ENDS, shortage
from assay.harness.models.subject import Subject
from assay.harness.results.errors import brief

CAPABILITY = "capability"
"""Stands where a claim's number does for a fault that is noticed by a capability that is gone."""


def lacking(subject: Subject) -> dict[str, str]:
    """The capabilities that the subject's type offers and it lacks, each with the reason."""
    if not isinstance(subject.offer, Offer):
        return {}
    found = {name: _lack(subject, name) for name in sorted(subject.offer.demanded)}
    return {name: why for name, why in found.items() if why is not None}


def _lack(subject: Subject, name: str) -> str | None:
    """Why the subject lacks a capability; None if it has it or the machine could not tell."""
    try:
        return probe(subject).why_missing(name)
    except Braked:
        return None
    except ENDS as error:
        return None if shortage(error) else f"not found out: {brief(error)}"
