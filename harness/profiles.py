"""Budgets: how many examples or draws, and seconds, a claim may take."""

from __future__ import annotations

from dataclasses import dataclass

from harness.errors import BadInput


@dataclass(frozen=True)
class Profile:
    """``examples`` and ``seconds`` for one law; ``shrink`` more seconds for a failure.

    ``draws`` and ``finding_seconds`` for one finding; ``prompts`` are the draws of one whose draws
    cost seconds, such as an inversion, however long they take.
    """

    name: str
    examples: int
    seconds: float
    shrink: float
    draws: int = 256
    finding_seconds: float = 8.0
    prompts: int = 16


PROFILES = {
    profile.name: profile
    for profile in (
        Profile("glance", examples=4, seconds=0.4, shrink=1.0),
        Profile("quick", examples=12, seconds=2.0, shrink=2.0),
        Profile(
            "standard",
            examples=60,
            seconds=6.0,
            shrink=30.0,
            draws=1024,
            finding_seconds=10.0,
            prompts=72,
        ),
        Profile(
            "thorough",
            examples=1000,
            seconds=600.0,
            shrink=300.0,
            draws=8192,
            finding_seconds=600.0,
            prompts=240,
        ),
    )
}
"""The profiles by name; ``quick`` is the default."""


def check_profile(name: str) -> None:
    """Raise `BadInput` for the name of no profile."""
    if name not in PROFILES:
        raise BadInput(f"--profile {name!r}: is unknown; choose from {', '.join(PROFILES)}")
