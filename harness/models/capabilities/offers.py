"""What a type of model is known to offer: a model of it that lacks a capability is broken.

A law does not apply to a model without the capability that it needs, so a model that ignores an
input that its type takes would take every law about that input away with it.  What each type
offers in a version of transformers is therefore recorded (`fixtures.families.offers`), and a
model that offers less fails the run by the capability's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.harness.models.capabilities.registry import of
from assay.harness.models.shortage import ENDS, shortage
from assay.harness.models.subject import Subject
from assay.harness.results.errors import brief

CAPABILITY = "capability"
"""Stands where a claim's number does for a fault that is noticed by a capability that is gone."""

INDIVIDUAL = frozenset(
    {
        *("weights-in-memory", "tokenizer", "trained", "usual-weights"),
        *("tied-head", "full-rank-embedding"),
        "packed-positions",  # of a control only: no law goes with it
    }
)
"""Capabilities of one model, its weights and what came with it: never recorded of a type."""

OF_TYPE = frozenset(
    {
        *("generation", "lm-head", "encoder", "embedding-table", "inputs-embeds", "padding"),
        *("cached-generation", "cache", "chunks-beside-cache"),
        *("position-ids", "mask-4d", "kv-cache", "mask-beside-cache"),
    }
)
"""Capabilities that every model of a type has, however it is configured: what its code takes.

All others, such as whether positions are learned or relative, whether weights of attention sum to
one, or how long a context is, may be a matter of the configuration: they are asked of tiny models
only, which have their type's default one.
"""

OF_LAYERS = frozenset({"position-ids", "mask-4d", "kv-cache", "mask-beside-cache"})
"""Of those, what a type with recurrent layers has only where other layers are among them."""


@dataclass(frozen=True)
class Offer:
    """What is recorded of a type: ``names`` of capabilities in a ``version`` of transformers.

    ``type`` is ``KIND:MODEL_TYPE``; ``configured`` says that the model has a configuration of its
    own, and ``free`` which capabilities that may then be without.
    """

    type: str
    version: str
    names: frozenset[str]
    configured: bool = False
    free: frozenset[str] = frozenset()

    @property
    def demanded(self) -> frozenset[str]:
        """The capabilities that a model must have."""
        if not self.configured:
            return self.names - INDIVIDUAL
        layers = OF_LAYERS if "recurrence" in self.names else frozenset()
        return (self.names & OF_TYPE) - layers - self.free


def lacking(subject: Subject) -> dict[str, str]:
    """The capabilities that the subject's type offers and it lacks, each with the reason."""
    if not isinstance(subject.offer, Offer):
        return {}
    found = {name: _lack(subject, name) for name in sorted(subject.offer.demanded)}
    return {name: why for name, why in found.items() if why is not None}


def _lack(subject: Subject, name: str) -> str | None:
    """Why the subject lacks a capability; None if it has it or the machine could not tell."""
    try:
        return of(subject).why_missing(name)
    except ENDS as error:
        return None if shortage(error) else f"not found out: {brief(error)}"


def told(subject: str, recorded: Mapping[str, Any], name: str, why: str) -> str:
    """The line about a capability that is lacking; ``recorded`` as in a subject's description."""
    whose = f"{recorded['type']} has in transformers {recorded['version']}"
    return f"{subject} lacks `{name}`, which {whose}: {why}"
