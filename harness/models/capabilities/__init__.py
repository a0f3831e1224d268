"""Capabilities of a model, determined from its configuration and by probing it.

A capability is a name; a claim that needs one that a subject lacks is *not applicable*, with that
name and the reason from here.  What a model is not meant to do is known by its type and
configuration (`designs`); nothing else depends on a list of names.  A probe never measures the
effect that a law is about: whether a model is causal comes from its own declaration, so a causal
model that attends to the future is broken, not bidirectional.

The modules are by topic.  Importing one registers its probes, so the order of the imports below is
the order in which reports list the capabilities.
"""

from __future__ import annotations

from assay.harness.models.capabilities import (  # noqa: F401
    declared,
    identity,
    input_arguments,
    kept_states,
    packing,
    parts,
    position_encoding,
    rotation,
    text,
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
