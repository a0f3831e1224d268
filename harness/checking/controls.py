"""The controls of a law: damaged outputs, counted by name, each of which it must reject."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.harness.models import capabilities
from assay.harness.models.subject import Subject
from assay.harness.results.verdicts import DECADES, margin

ENOUGH = 3
"""A control that was rejected this often need not run again."""


@dataclass(frozen=True)
class Damage:
    """What a control does, in words, and the models to which it applies.

    These have the capability ``needs`` and not the capability ``unless``; an empty name is no
    condition.
    """

    says: str
    needs: str = ""
    unless: str = ""

    def why_not(self, subject: Subject) -> str:
        """Why this does not apply to ``subject``, by a capability's name; empty if it does."""
        has = capabilities.probe(subject)
        if self.needs and (why := has.why_missing(self.needs)) is not None:
            return f"{self.needs}: {why}"
        return f"the model has {self.unless}" if self.unless and self.unless in has else ""


@dataclass
class Control:
    """How often one control was tried and rejected; ``margin`` is its largest excess over the
    bound, in decades.
    """

    tried: int = 0
    rejected: int = 0
    margin: float = -DECADES

    def count(self, observed: float, allowed: float, beyond: bool) -> None:
        """Count one more judgement: a control ``beyond`` its bound is rejected."""
        self.tried += 1
        self.rejected += beyond
        self.margin = max(self.margin, -margin(observed, allowed))


class Controls:
    """The controls of one law by name; a law's only control has the empty name.

    ``damages`` says what each does.  Each must be tried and rejected, except those that do not
    apply to the model (`inapplicable`); where none applies, the law has no control.
    """

    def __init__(self, damages: str | Damage | Mapping[str, str | Damage] = "") -> None:
        named = damages if isinstance(damages, Mapping) else {"": damages}
        self.damages = {
            name: Damage(damage) if isinstance(damage, str) else damage
            for name, damage in named.items()
        }
        self.by_name: dict[str, Control] = {}
        self.inapplicable: dict[str, str] = {}

    def on(self, subject: Subject) -> None:
        """Note the controls that do not apply to ``subject``, each with the reason."""
        reasons = {name: damage.why_not(subject) for name, damage in self.damages.items()}
        self.inapplicable = {name: why for name, why in reasons.items() if why}

    def control(self, name: str) -> Control:
        """The counts of one control; raises ValueError for an undeclared name."""
        if name not in self.damages:
            raise ValueError(f"control {name!r} is not declared: {', '.join(self.damages)}")
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
        """The margin of the control that was rejected most narrowly."""
        return min((control.margin for control in self.by_name.values()), default=-DECADES)

    @property
    def never_tried(self) -> list[str]:
        """Names of controls that were never tried; inapplicable ones only if none applies."""
        applying = [name for name in self.damages if name not in self.inapplicable]
        return [name for name in applying or self.damages if name not in self.by_name]

    @property
    def never_rejected(self) -> list[str]:
        """Names of controls that were tried and always passed."""
        return [name for name, control in self.by_name.items() if not control.rejected]

    @property
    def outstanding(self) -> list[str]:
        """Names of controls that must still be rejected."""
        return [*self.never_rejected, *self.never_tried]

    def sentence(self, name: str) -> str:
        """What a control does, with its name where it has one."""
        return ": ".join(part for part in (name, self.damages[name].says) if part)

    @property
    def complaint(self) -> str:
        """Which controls passed, or were never tried, in words; empty where all were rejected."""
        groups = {
            "the control passed too": self.never_rejected,
            "the control was never tried": self.never_tried,
        }
        listed = {how: "; ".join(map(self.sentence, names)) for how, names in groups.items()}
        return "; ".join(f"{how}: {names}" for how, names in listed.items() if names)

    def as_json(self) -> dict[str, Any]:
        """Every control: its sentence, counts and margin, and why it does not apply, if so."""
        details = {}
        for name, damage in self.damages.items():
            control = self.by_name.get(name, Control())
            details[name or "control"] = {
                "says": damage.says,
                "rejected": control.rejected,
                "tried": control.tried,
                "margin": control.margin,
            }
            if name in self.inapplicable:
                details[name or "control"]["does not apply"] = self.inapplicable[name]
        return details
