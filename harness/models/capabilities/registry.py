"""The registry of capabilities: names, their probes, and a model's results.

Which module probes a capability is read off the files of this folder.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable
from pathlib import Path

from assay.harness.models.machine.shortage import shortage
from assay.harness.models.subject import Subject
from assay.harness.models.subject.clock import Braked, ForwardClock
from assay.harness.models.subject.memo import memo
from assay.harness.results.errors import REFUSALS, Missing, Unavailable, brief


class Capabilities:
    """The capabilities of one subject, each probed at its first use."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self._reasons: dict[str, str | None] = dict(subject.own_capabilities or {})
        self.slow: dict[str, str] = {}
        """Capabilities whose probe was too slow, with the pass that was."""
        self.unavailable: set[str] = set()
        """Those that were asked for and are missing for another reason than the model."""

    def why_missing(self, name: str) -> str | None:
        """None if the subject has the capability ``name``, otherwise why it does not.

        Raises KeyError for an unknown name, and the probe's error where it gives no answer: a
        shortage of the machine (`models.machine.shortage`), or an error by which no model rejects
        its input.  Such an error is not cached.
        """
        from assay.harness.models.capabilities import designs  # at first use, as the probes

        if name not in self._reasons:
            probe = _probe(name)
            if (why := designs.why_not(self.subject, name)) is not None:
                self._reasons[name] = why
                return why
            try:
                probe(self.subject)
                self._reasons[name] = None
            except Missing as missing:
                if shortage(missing):
                    raise
                self._reasons[name] = str(missing)
                if isinstance(missing, Unavailable):
                    self.unavailable.add(name)
            except REFUSALS as error:  # from the library, outside the probe's own handling
                if shortage(error):
                    raise
                self._reasons[name] = f"not found out: {brief(error)}"
        return self._reasons[name]

    def missing(self, name: str, message: str) -> Missing:
        """The error that says that the capability ``name`` is missing."""
        return (Unavailable if name in self.unavailable else Missing)(message)

    def __contains__(self, name: str) -> bool:
        return self.why_missing(name) is None

    def was_probed(self, name: str) -> bool:
        """Whether a probe has already said whether the subject has the capability ``name``."""
        return name in self._reasons

    def why_missing_within(self, brake: float, name: str) -> str | None:
        """`why_missing`; raises `Braked` where a pass of the probe takes more than ``brake``
        seconds, and at once when asked again.
        """
        if name in self.slow:
            raise Braked(self.slow[name])
        try:
            with ForwardClock(brake, each=True).watching(self.subject):
                return self.why_missing(name)
        except Braked as braked:
            self.slow[name] = str(braked)
            raise


@memo
def probe(subject: Subject) -> Capabilities:
    """The capabilities of ``subject``, one object for each subject."""
    return Capabilities(subject)


def require(subject: Subject, name: str) -> None:
    """Raise `Missing` where a claim's body needs the capability ``name`` and it is missing."""
    if (why := probe(subject).why_missing(name)) is not None:
        raise probe(subject).missing(name, f"{name}: {why}")


def needs(subject: Subject, name: str) -> None:
    """Raise `Missing`, with its reason, where a probe needs ``name`` and it is missing."""
    if (why := probe(subject).why_missing(name)) is not None:
        raise probe(subject).missing(name, why)


PROBES: dict[str, Callable[[Subject], None]] = {}
"""Capability name → a probe, which raises `Missing` if the subject lacks it; of the modules that
were imported so far.
"""

REGISTERED = re.compile(r'^@capability\("([\w-]+)"\)$', re.MULTILINE)


def names() -> list[str]:
    """The names of all capabilities, in the order in which reports list them."""
    return list(modules())


@functools.cache
def modules() -> dict[str, str]:
    """Capability name → the module of this folder that registers its probe."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return {name: file.stem for file in files for name in REGISTERED.findall(file.read_text())}


def _probe(name: str) -> Callable[[Subject], None]:
    """The probe of a capability; imports its module; KeyError for an unknown name."""
    if name not in PROBES:
        importlib.import_module(f"{__package__}.{modules()[name]}")
    return PROBES[name]


def capability(name: str) -> Callable[[Callable[[Subject], None]], Callable[[Subject], None]]:
    """Register a probe under ``name``."""

    def register(probe: Callable[[Subject], None]) -> Callable[[Subject], None]:
        PROBES[name] = probe
        return probe

    return register
