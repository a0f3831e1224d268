"""The capabilities of a model for the record, and those that it is expected to have.

Lacking an expected one is a failure.

A law does not apply to a model without the capability that it needs, so a model that ignores an
input that its type takes would escape every law about that input, and so would every model after
a release of transformers in which Assay no longer finds an argument.  The capabilities of each
type are therefore recorded by version (`fixtures.families.offers`); a class that nobody recorded
promises some by itself.  A model that lacks one fails the run by the capability's name.
"""

from __future__ import annotations

import math

from assay.harness.models.capabilities.registry import modules, names, probe
from assay.harness.models.machine.shortage import ENDS, shortage
from assay.harness.models.reference.slices import Slice, part_of
from assay.harness.models.subject import Subject
from assay.harness.models.subject.clock import Braked
from assay.harness.models.subject.offer import OF_TYPE, Offer
from assay.harness.results.errors import brief

NO_TIME = "not found out: no time was left"
"""The reason of a capability whose probe did not begin."""

OF_FOLDERS = ("files", "gguf-file", "tokenizer", "own-adapter")
"""Capabilities of what a model was loaded from, as are those of texts."""

CAPABILITY = "capability"
"""In place of a claim's number, for a fault that is detected by a missing capability."""


def reasons(subject: Subject, brake: float = math.inf) -> dict[str, str | None]:
    """Every capability by name, with None or why it is missing.

    Once a pass has taken more than ``brake`` seconds, the remaining ones are not found out; with a
    brake of 0 no probe begins.
    """
    if subject.own_capabilities is not None:
        return dict(subject.own_capabilities)
    return {name: _reason(subject, name, brake) for name in names()}


def _reason(subject: Subject, name: str, brake: float) -> str | None:
    capabilities = probe(subject)
    if not capabilities.was_probed(name):
        if not brake:
            return NO_TIME
        if capabilities.slow:
            return f"not found out: {next(iter(capabilities.slow.values()))}"
    try:
        return why_missing(subject, name, brake)
    except Braked as braked:
        return f"not found out: {braked}"
    except ENDS as error:
        return f"not found out: {shortage(error) or brief(error)}"


def why_missing(subject: Subject, name: str, brake: float = math.inf) -> str | None:
    """`Capabilities.why_missing_within`; of a large model that was not asked, its slice is.

    A slice has neither the model's files nor its tokenizer: the model is asked for those.
    """
    capabilities = probe(subject)
    if not capabilities.was_probed(name) and modules()[name] != "text" and name not in OF_FOLDERS:
        part = part_of(subject)
        if isinstance(part, Slice):
            capabilities = probe(part.subject)
    return capabilities.why_missing_within(brake, name)


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
    lacks = {name: _lack(subject, name) for name in demanded}
    return {name: why for name, why in lacks.items() if why is not None}


def _lack(subject: Subject, name: str) -> str | None:
    """Why the subject lacks a capability; None if it has it or this run cannot tell."""
    try:
        why = why_missing(subject, name)
        return None if name in probe(subject).unavailable else why
    except Braked:
        return None
    except ENDS as error:
        return None if shortage(error) else f"not found out: {brief(error)}"
