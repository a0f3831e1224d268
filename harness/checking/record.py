"""The record of a law's examples: `Check` writes it, and `laws.run` judges by it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from assay.harness.checking.controls import Controls
from assay.harness.checking.detection import Detection
from assay.harness.models.subject.rows import Rows
from assay.harness.results.verdicts import margin


@dataclass
class Example:
    """The example that is running; ``shared`` says that its prompt is one that laws share.

    ``margin`` is its least one so far.  ``emulated`` says that the plain path also ran as other
    machines round it.  ``smallest_leak`` finds the one that a comparison with equal runs detects.
    """

    shared: bool = False
    margin: float = math.inf
    emulated: bool = False
    smallest_leak: Callable[[Rows], float] | None = None


@dataclass
class Record:
    """What all examples of a law came to so far.

    ``observed`` and ``allowed`` are those with the least margin of ``compared`` comparisons.
    """

    detection: Detection
    controls: Controls
    observed: float = 0.0
    allowed: float = 1.0
    compared: int = 0
    margins: list[float] = field(default_factory=list)
    """The least margin of each example, NaN where nothing was compared."""
    tokens: int = 0
    """Tokens of the longest prompt that was compared."""
    at_edges: bool = False
    """Whether the law's prompts are to pass the model's windows and chunks."""
    goal: int = 0
    """Tokens that one of the law's prompts is to have; 0 where the model is large."""
    reached: dict[str, bool] = field(default_factory=dict)
    """What an example has to reach for the law to say anything, and whether one did."""
    by_reference: bool = False
    """Whether rows were compared with the float64 reference."""
    noise: dict[str, float] = field(default_factory=dict)
    """The largest difference between two equal runs, by tensor."""
    shown: bool = False
    """Whether the model's slice detects an error as small as the goal."""
    example: Example = field(default_factory=Example)
    _least: float = margin(0.0, 1.0)

    def begin(self, shared: bool = False) -> None:
        """Begin an example: forget the comparisons of the one before."""
        self.example = Example(shared)

    def end(self) -> None:
        """End an example that kept the law."""
        least = self.example.margin
        self.margins.append(least if math.isfinite(least) else math.nan)

    def add(self, observed: float, allowed: float) -> None:
        """Keep the two numbers if their margin is the smallest so far."""
        room = margin(observed, allowed)
        self.example.margin = min(self.example.margin, room)
        if room < self._least or self.compared == 1:
            self._least, self.observed, self.allowed = room, observed, allowed

    @property
    def unreached(self) -> str:
        """What no example reached, in words; empty if nothing is missing."""
        missing = [what for what, reached in self.reached.items() if not reached]
        if not missing:
            return ""
        return f"not reached with prompts of up to {self.tokens} tokens: {', '.join(missing)}"

    @property
    def judged_by(self) -> str:
        """What judges the law's comparisons, in words."""
        ways = ["the float64 reference"] if self.by_reference else []
        if self.detection.one_shape:
            ways.append("what two equal runs differ by, for its two passes of one shape")
        return "; ".join(ways) or "a bound of its own"

    @property
    def can_fail(self) -> bool:
        """Whether every control was rejected, an error as small as the goal detected, unless the
        model's slice has shown one, and what the law is about reached.
        """
        detects = self.shown or self.detection.leak is None or self.detection.sharp
        return not self.controls.outstanding and detects and not self.unreached
