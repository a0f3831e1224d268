"""Looks up an option that a caller names, such as a method, and rejects unknown names."""

from __future__ import annotations

from collections.abc import Iterable

from assay.harness.results.errors import BadInput


def check_choice(what: str, name: str, choices: Iterable[str]) -> None:
    """Raise `BadInput` unless ``name`` is one of ``choices``; ``what`` says of what."""
    if name not in (known := tuple(choices)):
        raise BadInput(f"unknown {what} {name!r}: choose from {', '.join(known)}")
