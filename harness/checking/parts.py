"""Which part of a model a law is decided on: a slice of a large one, and the whole of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import structs

from assay.harness.checking.claim import Claim, Session
from assay.harness.models.reference.slices import Slice, part_of
from assay.harness.models.subject import Subject
from assay.harness.models.subject.releasing import release_copies
from assay.harness.results.errors import LONGEST, shortened
from assay.harness.results.verdicts import DECIDED_ON, HIDDEN, LEAK, WHOLE, Result, Verdict

CORE_EXAMPLES = 2
"""Examples of a core law on the whole of a model, whose slice has taken the profile's number.

Two show a defect of a late block, which every prompt passes through.
"""

Examine = Callable[..., Result]
"""Examines a law on a subject with at most so many examples, and no more where a slice has
``shown`` that it detects a small error.
"""


def decide(
    claim: Claim,
    subject: Subject,
    arguments: Mapping[str, Any],
    session: Session,
    examine: Examine,
) -> Result:
    """The law's result on ``subject``: on its slice if it is large, and says so.

    A core law is examined on the whole model as well; so is one that the slice breaks, and one
    that does not apply to the slice, which has no files and no tokenizer.  In 16 bits all blocks
    may round so far that the whole, which keeps a core law, shows no leak as small as the goal;
    the slice shows it, and the result says from which size on the whole does.
    """
    examples = claim.examples(session.profile)
    part = part_of(subject)
    if not isinstance(part, Slice):
        return _noted(examine(subject, examples), part)
    try:
        sliced = examine(part.subject, examples)
    finally:
        release_copies(part.subject)
    if sliced.verdict is Verdict.NOT_APPLICABLE:
        return _noted(examine(subject, examples), WHOLE)
    if session.replay is not None:
        return _noted(sliced, str(part))
    if sliced.verdict is Verdict.REFUTED:
        return _confirmed(sliced, examine(subject, examples), part)
    if not _is_core(claim, arguments):
        return _noted(sliced, str(part))
    in_16_bits = subject.dtype.itemsize == 2
    shown = sliced.verdict is Verdict.UPHELD and in_16_bits
    whole = examine(subject, min(CORE_EXAMPLES, examples), shown=shown)
    hidden = whole.details.get(LEAK) if whole.details.get(HIDDEN) else None
    if whole.verdict is not Verdict.UPHELD and not (hidden and sliced.verdict is Verdict.UPHELD):
        return _noted(whole, WHOLE)
    words = f"{part}, and {WHOLE} in {whole.examples} examples"
    if hidden:
        whole = structs.replace(whole, reason="")
        words += f", where the rounding of 16 bits hides a leak of less than {hidden:.2g}"
    return _noted(_both(sliced, whole), words)


def _is_core(claim: Claim, arguments: Mapping[str, Any]) -> bool:
    """Whether a law is examined on the whole of every model, with these ``arguments``."""
    return claim.core if isinstance(claim.core, bool) else claim.core in arguments.values()


def _confirmed(sliced: Result, whole: Result, part: Slice) -> Result:
    """The result of a law that a slice breaks: undecided unless the whole model breaks it too.

    Nobody runs a slice, and what its head makes of early states may be mostly rounding.
    """
    if whole.verdict is Verdict.REFUTED:
        return _noted(sliced, f"{part}, and {WHOLE}")
    why = f"{part} break it ({sliced.reason}), and {WHOLE} is {whole.verdict.value}"
    return structs.replace(
        whole,
        verdict=Verdict.INCONCLUSIVE,
        reason=shortened(why, LONGEST),
        details={**whole.details, DECIDED_ON: f"{part}, and {WHOLE}"},
    )


def _both(sliced: Result, whole: Result) -> Result:
    """The result of two: the slice's, with the smaller of the margins."""
    closest = min(sliced, whole, key=lambda each: math.inf if each.margin is None else each.margin)
    return structs.replace(
        sliced,
        reason=sliced.reason or whole.reason,
        observed=closest.observed,
        bound=closest.bound,
        margin=closest.margin,
        examples=sliced.examples + whole.examples,
        seconds=sliced.seconds + whole.seconds,
        details={**sliced.details, WHOLE: {"margin": whole.margin, "seconds": whole.seconds}},
    )


def _noted(result: Result, part: str) -> Result:
    """``result`` with the part of the model that it was decided on, if that is worth a word."""
    if not part or result.verdict is Verdict.NOT_APPLICABLE:
        return result
    words = part if part.startswith("examined") else f"decided on {part}"
    reason = f"{result.reason}; {words}" if result.reason else words
    return structs.replace(result, reason=reason, details={**result.details, DECIDED_ON: part})
