"""Planted drifts: what a new version of transformers might change, in a model in memory.

A drift is not a fault of a model: the model computes what it did, and names, types or defaults
differ.  Assay must carry it, which gives the same verdicts, or be loud: the run fails and names
what was not examined.  A drift after which a run is green with fewer laws is a defect of Assay.

`DRIFTS` has them by name; `apply` changes a model in place and returns what undoes it.  The
modules are by topic: `arguments` and `outputs` of the forward pass, and `classes`, with defaults,
configurations and methods.
"""

from __future__ import annotations

from assay.harness.tests.support.drifts import arguments, classes, outputs  # noqa: F401
from assay.harness.tests.support.drifts.registry import DRIFTS, Drift, Inapplicable

__all__ = ["DRIFTS", "Drift", "Inapplicable"]
