"""Reads seeds: whole numbers from 0 to the largest that torch takes."""

from __future__ import annotations

from assay.harness.results.errors import BadInput

LARGEST_SEED = 2**63 - 1
"""What a signed integer of 64 bits holds: others who read the JSON may have no larger one."""

SHOWN = 40
"""Characters of what was given that a message repeats."""


def read_seed(given: str, where: str) -> int:
    """The seed that ``given`` is; raises `BadInput`, which names ``where`` it stands."""
    shown, where = (each if len(each) <= SHOWN else f"{each[:SHOWN]}…" for each in (given, where))
    if not (given.isascii() and given.isdecimal()):
        raise BadInput(f"{where}: the seed {shown!r} is not a whole number from 0 on")
    digits = given.lstrip("0") or "0"
    # Python itself refuses thousands of digits.
    if len(digits) > len(str(LARGEST_SEED)) or int(digits) > LARGEST_SEED:
        raise BadInput(f"{where}: the seed {shown} is too large; the largest is 2**63 - 1")
    return int(digits)
