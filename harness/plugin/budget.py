"""`--budget`: no claim starts once a run's time is used up.

A budget changes which claims are examined, never how they are judged.  What it leaves out is
inconclusive, says so, and is examined by a run with `--resume`.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from time import perf_counter

from assay.harness.checking.claim import Session
from assay.harness.results.errors import BadInput

UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}

SHORTEST = 10.0
"""Seconds of the shortest budget: less is used up before the first claim."""


def read_budget(text: str | None) -> float | None:
    """The seconds of ``--budget``: ``90s``, ``10m`` or ``2h``; raises `BadInput`."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)\s*([smh]?)", text.strip(), re.ASCII)
    if match is None:
        raise BadInput(f"--budget {text!r}: is no time such as 90s, 10m or 2h")
    seconds = float(match[1]) * UNITS[match[2]]
    if seconds < SHORTEST:
        raise BadInput(f"--budget {text}: is less than the {SHORTEST:.0f} s that any run takes")
    return seconds


class Budget:
    """The ``seconds`` of one process, from now on; None: as many as it needs."""

    def __init__(self, seconds: float | None) -> None:
        self._end = math.inf if seconds is None else perf_counter() + seconds

    @property
    def is_used_up(self) -> bool:
        """Whether no further claim may start."""
        return perf_counter() >= self._end

    def limited(self, session: Session) -> Session:
        """The session of a claim that starts now: it is stopped where the budget ends."""
        brake = min(session.profile.brake, max(1.0, self._end - perf_counter()))
        return replace(session, profile=replace(session.profile, brake=brake))
