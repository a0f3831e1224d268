"""Budgets: how many examples or draws a claim takes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from assay.harness.results.errors import BadInput


@dataclass(frozen=True)
class Profile:
    """What a run spends on each claim.  Only the brakes depend on time.

    A law takes ``examples``; where one fails, ``shrink`` more examples try to make it smaller.  A
    finding takes at most ``draws``, and one whose draws cost seconds, such as an inversion,
    ``prompts``.  A claim that takes longer than ``brake`` seconds ends inconclusive, and a finding
    about a large model (`models.lengths.is_large`) already after ``large_brake``.  To train one
    hundred inputs of such a model takes minutes, which its user does not wait for in ``quick``.

    Most prompts of a law have at most ``reach`` tokens times the model's parameters: a law about a
    large model takes shorter prompts (`models.lengths`).

    One example of some laws passes every window of the model, where that takes at most ``far``
    tokens times parameters (`models.lengths.farthest`).

    A law begins no further example once its passes took as many tokens as ``passes`` of 128 tokens
    (`models.lengths.most_tokens`), but takes two at least.

    Only with ``slow`` it includes claims that are declared slow: laws that are slow on any model,
    and findings that ``quick`` has too few draws to decide.

    ``glance`` draws as much for a finding as ``quick``: an interval that is valid at every size
    still contains 0.7 after twelve draws that are all 1.  With half of the draws most findings
    would cost half as much and decide nothing.
    """

    name: str
    examples: int
    shrink: int
    draws: int = 256
    prompts: int = 24
    brake: float = math.inf
    large_brake: float = math.inf
    reach: float = math.inf
    far: float = 2.0**41
    passes: float = math.inf
    slow: bool = False


REACH = 2.0**31
"""The reach of the short profiles: 256 tokens of 8 million parameters, 17 of 124 million."""

FAR = 2.0**34
"""`Profile.far` of the short profiles: eight times their reach, for one prompt in eight."""

PROFILES = {
    profile.name: profile
    for profile in (
        Profile("glance", 4, 10, brake=120.0, large_brake=30.0, reach=REACH, far=FAR, passes=12),
        Profile("quick", 8, 30, brake=300.0, large_brake=60.0, reach=REACH, far=FAR, passes=24),
        Profile("standard", 60, 300, draws=1024, prompts=192, brake=1800.0, slow=True),
        Profile(
            "thorough",
            1000,
            2000,
            draws=8192,
            prompts=480,
            brake=14400.0,
            far=2.0**44,
            slow=True,
        ),
    )
}
"""The profiles by name; ``quick`` is the default."""


def check_profile(name: str) -> None:
    """Raise `BadInput` where no profile has this ``name``."""
    if not isinstance(name, str) or name not in PROFILES:
        raise BadInput(f"--profile {name!r}: is unknown; choose from {', '.join(PROFILES)}")
