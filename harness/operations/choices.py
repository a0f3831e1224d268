"""Checks a caller's choice of an option, such as a method, and rejects unknown names."""

from __future__ import annotations

from collections.abc import Iterable

from assay.harness.results.errors import BadInput


def check_choice(what: str, name: str, choices: Iterable[str]) -> None:
    """Raise `BadInput` unless ``name`` is one of ``choices``; ``what`` names the option."""
    if name not in (names := tuple(choices)):
        raise BadInput(f"unknown {what} {name!r}: choose from {', '.join(names)}")
