"""Capabilities of a model, determined from its configuration and by probing it.

A capability is a name; a claim that needs one that a subject lacks is *not applicable*, with that
name and the reason from here.  What a model is not meant to do is known by its type and
configuration (`designs`); nothing else depends on a list of names.  A probe never measures the
effect that a law is about: whether a model is causal comes from its own declaration, so a causal
model that attends to the future is broken, not bidirectional.

The modules are by topic.  A module is imported when one of its capabilities is asked for; reports
list capabilities by the names of the modules, and within one in its own order.
"""

from __future__ import annotations

from assay.harness.models.capabilities.registry import Capabilities, names, probe, require
from assay.harness.results.errors import Missing

__all__ = ["Capabilities", "Missing", "names", "probe", "require"]
