"""Budgets: how many examples and seconds a claim may take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Profile:
    """``examples`` and ``seconds`` for one law; ``shrink`` more seconds for a failure."""

    name: str
    examples: int
    seconds: float
    shrink: float


PROFILES = {
    profile.name: profile
    for profile in (
        Profile("quick", examples=15, seconds=2.0, shrink=3.0),
        Profile("standard", examples=100, seconds=30.0, shrink=60.0),
        Profile("thorough", examples=1000, seconds=600.0, shrink=300.0),
    )
}
"""The profiles by name; ``quick`` is the default."""
