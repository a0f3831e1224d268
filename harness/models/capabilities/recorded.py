"""Compares a model with the capabilities that it is expected to have: lacking one is a failure.

A law does not apply to a model without the capability that it needs, so a model that ignores an
input that its type takes would escape every law about that input, and so would every model after
a release of transformers in which Assay no longer finds an argument.  The capabilities of each
type are therefore recorded by version (`fixtures.families.offers`); a class that nobody recorded
promises some by itself.  A model that lacks one fails the run by the capability's name.
"""

from __future__ import annotations

import math

from assay.harness.models.capabilities.registry import names, probe
from assay.harness.models.machine.shortage import ENDS, shortage
from assay.harness.models.subject import Subject
from assay.harness.models.subject.clock import Braked
from assay.harness.models.subject.offer import OF_TYPE, Offer
from assay.harness.results.errors import brief

CAPABILITY = "capability"
"""In place of a claim's number, for a fault that is detected by a missing capability."""


def lacking(subject: Subject, brake: float = math.inf) -> dict[str, str]:
    """The expected capabilities that the subject lacks, each with the reason.

    With a ``brake`` of 0 only those that were probed already.  Those of its inputs and its cache
    come first, then those that need them.
    """
    if not isinstance(subject.offer, Offer):
        return {}
    demanded = [name for name in names() if name in subject.offer.demanded]
    if not brake:
        demanded = [name for name in demanded if probe(subject).was_probed(name)]
    demanded.sort(key=lambda name: name not in OF_TYPE)
    reasons = {name: _lack(subject, name) for name in demanded}
    return {name: why for name, why in reasons.items() if why is not None}


def _lack(subject: Subject, name: str) -> str | None:
    """Why the subject lacks a capability; None if it has it or this run cannot tell."""
    capabilities = probe(subject)
    try:
        why = capabilities.why_missing_in_record(name)
        return None if name in capabilities.unavailable else why
    except Braked:
        return None
    except ENDS as error:
        return None if shortage(error) else f"not found out: {brief(error)}"
