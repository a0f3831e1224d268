"""Reads seeds: whole numbers from 0 to the largest that torch takes."""

from __future__ import annotations

from assay.harness.results.errors import BadInput

LARGEST_SEED = 2**63 - 1
"""The largest signed integer of 64 bits: other readers of the JSON may have no larger one."""

SHOWN = 40
"""Characters of the input that a message quotes."""


def read_seed(text: str, where: str) -> int:
    """The seed in ``text``; raises `BadInput`, which names ``where`` it comes from."""
    shown, where = (each if len(each) <= SHOWN else f"{each[:SHOWN]}…" for each in (text, where))
    if not (text.isascii() and text.isdecimal()):
        raise BadInput(f"{where}: the seed {shown!r} is not a whole number from 0 on")
    digits = text.lstrip("0") or "0"
    # Python itself rejects thousands of digits.
    if len(digits) > len(str(LARGEST_SEED)) or int(digits) > LARGEST_SEED:
        raise BadInput(f"{where}: the seed {shown} is too large; the largest is 2**63 - 1")
    return int(digits)
