"""Capabilities of a model, found from its configuration and by probing it.

A capability is a name; a claim that needs one which a subject lacks is *not applicable*, with
that name and the reason found here.  What a model is not meant to do is known by its type and
configuration (`designs`); nothing else is read off a list of names.  What a law is about is never
probed by the law's own effect: whether a model is causal comes from what it says of itself, so
that a causal model which sees the future is broken, not bidirectional.

The modules are by topic.  Importing one registers its probes, so that the order of the imports
below is that in which reports list the capabilities.
"""

from __future__ import annotations

from assay.harness.models.capabilities import (  # noqa: F401
    declared,
    identity,
    inputs,
    memory,
    parts,
    positions,
)
from assay.harness.models.capabilities.probing import PROBE, VISIBLE, agree
from assay.harness.models.capabilities.registry import (
    PROBES,
    Capabilities,
    capability,
    probe,
    require,
)
from assay.harness.results.errors import REFUSALS, Missing, first_line

__all__ = [
    "PROBE",
    "PROBES",
    "REFUSALS",
    "VISIBLE",
    "Capabilities",
    "Missing",
    "agree",
    "capability",
    "first_line",
    "probe",
    "require",
]
