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
from assay.harness.inversion import Inversion, Target
from assay.harness.models.loading import runs
from assay.harness.models.subject import Subject


@dataclass(frozen=True)
class DescentStep:
    """A descent after ``step`` steps: its loss, and the tokens that it decodes to."""

    step: int
    loss: float
    ids: list[int]


@dataclass(frozen=True)
class Recovery:
    """One prompt ``ids``, recovered.

    ``seconds`` are those of the search or descent; set-up is in ``inversion``.  ``steps`` are
    those shown, ``top`` [n, K] the tokens nearest to the end of a descent.
    """

    ids: list[int]
    inversion: Inversion
    seconds: float
    steps: list[DescentStep] = field(default_factory=list)
    top: list[list[int]] = field(default_factory=list)

    @property
    def tokens(self) -> list[int]:
        """The recovered tokens."""
        return self.inversion.ids[0].tolist()

    @property
    def recovered(self) -> int:
        """How many of them are the prompt's."""
        return agreeing(self.tokens, self.ids)

    @property
    def verified(self) -> int:
        """How many of them give the output that was inverted."""
        return int(self.inversion.verified[0].sum())

    @property
    def tried(self) -> int:
        """The number of candidates whose states were computed."""
        return int(self.inversion.tried[0].sum())

    @property
    def ok(self) -> bool:
        """Whether every token was recovered and verified."""
        return self.recovered == self.verified == len(self.ids)


def agreeing(recovered: Sequence[int], ids: Sequence[int]) -> int:
    """At how many positions two prompts have the same token."""
    return sum(one == other for one, other in zip(recovered, ids, strict=True))


def document(
    subject: Subject,
    target: Target,
    method: str,
    options: argparse.Namespace,
    outcomes: Sequence[Recovery],
) -> dict[str, Any]:
    """The outcomes in plain JSON types, as in `SCHEMA`; numbers that are not finite are null."""
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
        "given": options.given,
        "method": method,
        "descent": _descent(options) if method == "descent" else None,
        "ok": all(outcome.ok for outcome in outcomes),
        "prompts": [_prompt(subject, outcome) for outcome in outcomes],
    }


def _descent(options: argparse.Namespace) -> dict[str, Any]:
    names = ("steps", "rate", "optimiser", "distance", "schedule", "decoder", "start", "seed")
    return {name: getattr(options, name) for name in names}


def _prompt(subject: Subject, outcome: Recovery) -> dict[str, Any]:
    inversion, positions = outcome.inversion, range(len(outcome.ids))
    return {
        "ids": outcome.ids,
        "text": "".join(pieces(subject, outcome.ids)),
        "found": outcome.tokens,
        "found_text": "".join(pieces(subject, outcome.tokens)),
        "recovered": outcome.recovered,
        "verified": inversion.verified[0].tolist(),
        "distances": [_finite(each) for each in inversion.distances[0].tolist()],
        "tried": inversion.tried[0].tolist(),
        "passes": int(inversion.passes[0]),
        "equal": [inversion.others.get((0, position), []) for position in positions],
        "any_length": bool(inversion.any_length),
        "seconds": outcome.seconds,
        "set_up": inversion.set_up,
        "set_up_seconds": inversion.set_up_seconds,
        "steps": [asdict(step) | {"loss": _finite(step.loss)} for step in outcome.steps],
        "top": outcome.top,
        "notes": inversion.notes,
    }


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
