"""The model under test, as one interface: ids to rows, positions, masks and caches."""

from __future__ import annotations

from assay.harness.models.subject.roles import Role
from assay.harness.models.subject.rows import Output, Rows
from assay.harness.models.subject.subject import Subject

__all__ = ["Output", "Role", "Rows", "Subject"]
