"""The registry of capabilities: names, the probes that find them, and a model's results."""

from __future__ import annotations

import math
from collections.abc import Callable

from assay.harness.models.capabilities import designs
from assay.harness.models.clock import Braked, ForwardClock
from assay.harness.models.memo import memo
from assay.harness.models.shortage import ENDS, contained, shortage
from assay.harness.models.subject import Subject
from assay.harness.results.errors import REFUSALS, Missing, brief


class Capabilities:
    """The capabilities of one subject, found when first asked for and then kept."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self._found: dict[str, str | None] = {}
        self._hanging: dict[str, str] = {}

    def why_missing(self, name: str) -> str | None:
        """None if the subject has the capability ``name``, otherwise why it has not.

        Raises KeyError for a name that is no capability, and what the probe raised where that is
        no answer: the machine lacked something (`harness.models.shortage`), or the error is none
        by which models refuse.  It is not kept.  Raises `Braked` where `all` has
        found that the probe hangs.
        """
        probe = PROBES[name]
        if name in self._hanging:
            raise Braked(self._hanging[name])
        if name not in self._found:
            if (why := designs.why_not(self.subject, name)) is not None:
                self._found[name] = why
                return why
            try:
                with contained():
                    probe(self.subject)
                self._found[name] = None
            except Missing as missing:
                if shortage(missing):
                    raise
                self._found[name] = str(missing)
            except REFUSALS as error:  # of the library's, whatever the probe asked
                if shortage(error):
                    raise
                self._found[name] = f"not found out: {brief(error)}"
        return self._found[name]

    def __contains__(self, name: str) -> bool:
        return self.why_missing(name) is None

    def all(self, brake: float = math.inf) -> dict[str, str | None]:
        """Every capability by name, with None or why it is missing.

        A probe is ended that takes many times ``brake`` seconds (`ForwardClock.striking`).
        """
        return {name: self._described(name, brake) for name in PROBES}

    def _described(self, name: str, brake: float) -> str | None:
        try:
            with ForwardClock(brake).striking():
                return self.why_missing(name)
        except Braked as braked:
            self._hanging[name] = str(braked)
            return f"not found out: {braked}"
        except ENDS as error:
            return f"not found out: {shortage(error) or brief(error)}"


@memo
def probe(subject: Subject) -> Capabilities:
    """The capabilities of ``subject``, one object for each subject."""
    return Capabilities(subject)


def require(subject: Subject, name: str) -> None:
    """Raise `Missing` in a claim's body that turns out to need the capability ``name``."""
    if (why := probe(subject).why_missing(name)) is not None:
        raise Missing(f"{name}: {why}")


def needs(subject: Subject, name: str) -> None:
    """Raise `Missing` in a probe that builds on the capability ``name``, for its reason."""
    if (why := probe(subject).why_missing(name)) is not None:
        raise Missing(why)


PROBES: dict[str, Callable[[Subject], None]] = {}
"""Capability name → a function that returns if the subject has it and raises `Missing` if not."""


def capability(name: str) -> Callable[[Callable[[Subject], None]], Callable[[Subject], None]]:
    """Register a probe under ``name``."""

    def register(probe: Callable[[Subject], None]) -> Callable[[Subject], None]:
        PROBES[name] = probe
        return probe

    return register
