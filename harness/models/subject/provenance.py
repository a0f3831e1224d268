"""Whether a model's weights are trained, untrained or of unknown origin."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Training(StrEnum):
    """Whether weights were trained."""

    TRAINED = "trained"
    UNTRAINED = "untrained"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Provenance:
    """The origin of a model's weights.

    ``training`` is unknown for a checkpoint and for a model in memory: a freshly initialised one
    can also be saved.  ``unusual`` describes an initialisation other than the library's own; empty
    for all others.
    """

    training: Training = Training.UNKNOWN
    unusual: str = ""

    @property
    def caveat(self) -> str:
        """A note for a result that presumes trained weights; empty where training is known."""
        unknown = self.training is Training.UNKNOWN
        return "nothing says whether these weights were trained" if unknown else ""


UNKNOWN = Provenance()
TRAINED = Provenance(Training.TRAINED)
UNTRAINED = Provenance(Training.UNTRAINED)
UNIT_GAIN = Provenance(
    Training.UNTRAINED,
    "tiny models are initialised at unit gain, which is not how training usually begins",
)
"""The provenance of tiny models (`fixtures.families.weights`)."""
