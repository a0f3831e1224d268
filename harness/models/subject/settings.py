"""How a subject is run: what the user, the profile and the code around a pass decide about it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class SubjectSettings:
    """What a run decides about a subject.

    ``attends`` is the value of ``--attends`` (`harness.models.subject.meant`), ``float64`` that of
    ``--oracle`` (`harness.models.reference.float64`); with ``bitwise`` a row must have the same
    bits however it is run (``--bitwise``).  ``layers`` is ``all`` where laws are decided on the
    whole of a large model (``--layers``).

    ``reach`` and ``far`` come from the profile: parameters times tokens of a law's usual prompt,
    and of its one prompt that is to pass every window.

    ``listens`` says whether a pass notes how experts are chosen, which compiled code must not.
    ``drawn_as`` is the dtype in which a pass draws random numbers, where that is not the model's
    own; ``home`` the device to which rows are returned, where that is not the model's own.
    """

    attends: str | None = None
    float64: str = "auto"
    bitwise: bool = False
    layers: str = "auto"
    reach: float = math.inf
    far: float = math.inf
    listens: bool = True
    drawn_as: torch.dtype | None = None
    home: torch.device | None = None
