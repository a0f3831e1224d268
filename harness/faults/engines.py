"""Faults of Assay's own engine (`harness.engines.own`), and the claims that must catch them."""

from __future__ import annotations

from dataclasses import dataclass

from assay.harness.engines.own import FROM, NARROW


@dataclass(frozen=True)
class EngineFault:
    """A defect of an engine: what it does, and the claims that must catch it."""

    says: str
    caught_by: tuple[str, ...]


ENGINE_FAULTS = {
    "noise": EngineFault("adds noise of 1e-3 to all scores", ("I1",)),
    "positions-from-end": EngineFault("counts positions from the end of a request", ("I2",)),
    "mixed-rows": EngineFault(f"mixes neighbouring requests from {FROM} on", ("I3",)),
    "shifted-positions": EngineFault("counts positions after a cached prefix one late", ("I4",)),
    "stale-entry": EngineFault("keeps the entry of the first token that differs", ("I4",)),
    "cache-8-bits": EngineFault("rounds its cache to 8 bits of one scale", ("I4", "I5")),
    "last-entry": EngineFault("scales the last entry of a growing cache by 1.01", ("I5",)),
    "second": EngineFault("takes the second most probable token", ("I6",)),
    "temperature-twice": EngineFault("divides by the temperature twice", ("I7",)),
    "cut": EngineFault(f"samples from {NARROW} tokens and reports all", ("I7",)),
    "reports-otherwise": EngineFault("reports other scores than it says", ("I7",)),
    "bos-twice": EngineFault("begins texts and chats with two BOS", ("I8",)),
    "no-normaliser": EngineFault("does not normalise text", ("I8",)),
    "moved-weight": EngineFault("has one weight moved by a half", ("I9",)),
}
"""The faults by name: ``engine:own:MODEL+FAULT``."""
