"""Recovered prompts: for the display, for the exit code, and as JSON."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from assay import harness
from assay.harness.cli.prompts import pieces
from assay.harness.cli.recovery_schema import VERSION
from assay.harness.models import runs
from assay.harness.models.subject import Subject
from assay.harness.operations.inversion import Inversion, Target


@dataclass(frozen=True)
class DescentStep:
    """Where a descent is after ``step`` steps: its loss, and the tokens that it decodes to."""

    step: int
    loss: float
    ids: list[int]


@dataclass(frozen=True)
class Recovery:
    """One prompt ``ids``, recovered.

    ``seconds`` are those of the search or descent; set-up is in ``found``.  ``steps`` are those
    that were shown, ``top`` [n, K] the tokens nearest to the end of a descent.
    """

    ids: list[int]
    found: Inversion
    seconds: float
    steps: list[DescentStep] = field(default_factory=list)
    top: list[list[int]] = field(default_factory=list)

    @property
    def tokens(self) -> list[int]:
        """The tokens that were found."""
        return self.found.ids[0].tolist()

    @property
    def recovered(self) -> int:
        """How many of them are the prompt's."""
        return agreeing(self.tokens, self.ids)

    @property
    def verified(self) -> int:
        """How many of them give the output that was given."""
        return int(self.found.verified[0].sum())

    @property
    def tried(self) -> int:
        """Candidates whose states were computed."""
        return int(self.found.tried[0].sum())

    @property
    def ok(self) -> bool:
        """Whether every token was recovered and verified."""
        return self.recovered == self.verified == len(self.ids)


def agreeing(found: Sequence[int], ids: Sequence[int]) -> int:
    """At how many places two prompts have the same token."""
    return sum(one == other for one, other in zip(found, ids, strict=True))


def document(
    subject: Subject,
    target: Target,
    method: str,
    asked: argparse.Namespace,
    outcomes: Sequence[Recovery],
) -> dict[str, Any]:
    """All of it in plain JSON types, as `SCHEMA` has it; numbers that are not finite are null."""
    return {
        "schema": VERSION,
        "suite": harness.__version__,
        "versions": runs.versions(),
        "model": subject.name,
        "digest": subject.digest,
        "vocabulary": subject.vocabulary,
        "device": runs.device_name(str(subject.device)),
        "dtype": str(subject.dtype).removeprefix("torch."),
        "attention": subject.attention,
        "depth": target.depth,
        "target": target.through,
        "method": method,
        "descent": _descent(asked) if method == "descent" else None,
        "ok": all(outcome.ok for outcome in outcomes),
        "prompts": [_prompt(subject, outcome) for outcome in outcomes],
    }


def _descent(asked: argparse.Namespace) -> dict[str, Any]:
    names = ("steps", "rate", "optimiser", "distance", "schedule", "decoder", "start", "seed")
    return {name: getattr(asked, name) for name in names}


def _prompt(subject: Subject, outcome: Recovery) -> dict[str, Any]:
    found, places = outcome.found, range(len(outcome.ids))
    return {
        "ids": outcome.ids,
        "text": "".join(pieces(subject, outcome.ids)),
        "found": outcome.tokens,
        "found_text": "".join(pieces(subject, outcome.tokens)),
        "recovered": outcome.recovered,
        "verified": found.verified[0].tolist(),
        "distances": [_finite(each) for each in found.distances[0].tolist()],
        "tried": found.tried[0].tolist(),
        "equal": [found.others.get((0, place), []) for place in places],
        "any_length": bool(found.any_length),
        "seconds": outcome.seconds,
        "set_up": found.set_up,
        "set_up_seconds": found.set_up_seconds,
        "steps": [asdict(step) | {"loss": _finite(step.loss)} for step in outcome.steps],
        "top": outcome.top,
        "notes": found.notes,
    }


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
