"""Controls of a law: each has a name, is counted alone, and must be rejected itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.verdicts import DECADES, margin

ENOUGH = 3
"""A control that was rejected this often need not be run again."""


@dataclass
class Control:
    """How often one control was tried and rejected; ``margin`` is how far beyond its bound, at
    best, in decades.
    """

    tried: int = 0
    rejected: int = 0
    margin: float = -DECADES

    def count(self, observed: float, allowed: float, beyond: bool) -> None:
        """It was judged once more: ``beyond`` its bound is rejected."""
        self.tried += 1
        self.rejected += beyond
        self.margin = max(self.margin, -margin(observed, allowed))


class Controls:
    """The controls of one law by name; a law's only control has the empty name.

    ``says`` has a sentence for each.  One that a model cannot be given (it names a capability
    that is missing) is never tried and need not be rejected; of all, at least one must be.
    """

    def __init__(self, says: str | Mapping[str, str] = "") -> None:
        self.says = {"": says} if isinstance(says, str) else dict(says)
        self.by_name: dict[str, Control] = {}

    def of(self, name: str) -> Control:
        """The counts of one control; ValueError for a name that the law did not declare."""
        if name not in self.says:
            raise ValueError(f"control {name!r} is not declared: {', '.join(self.says)}")
        return self.by_name.setdefault(name, Control())

    def wanted(self, name: str = "") -> bool:
        """Whether a control has not been rejected often enough yet."""
        return name not in self.by_name or self.by_name[name].rejected < ENOUGH

    @property
    def tried(self) -> int:
        """How often any control was tried."""
        return sum(control.tried for control in self.by_name.values())

    @property
    def rejected(self) -> int:
        """How often any control was rejected."""
        return sum(control.rejected for control in self.by_name.values())

    @property
    def margin(self) -> float:
        """The margin of the control that was rejected least plainly."""
        return min((control.margin for control in self.by_name.values()), default=-DECADES)

    @property
    def dead(self) -> list[str]:
        """Names of controls that were tried and never rejected; all names if none was tried."""
        if not self.by_name:
            return list(self.says)
        return [name for name, control in self.by_name.items() if not control.rejected]

    def sentence(self, name: str) -> str:
        """What a control is, with its name where it has one."""
        return ": ".join(part for part in (name, self.says[name]) if part)

    def as_json(self) -> dict[str, Any]:
        """The details of every control: its sentence, counts and margin."""
        told = {}
        for name, says in self.says.items():
            control = self.by_name.get(name, Control())
            told[name or "control"] = {
                "says": says,
                "rejected": control.rejected,
                "tried": control.tried,
                "margin": control.margin,
            }
        return told
