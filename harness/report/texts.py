"""Formats values as short text: numbers, margins, durations, names, odd tokens."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from typing import Any

from assay.harness.results.verdicts import DECADES, Result

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def visible(text: str, keep: str = "") -> str:
    """``text`` with control and format characters, lone surrogates and the like as escapes.

    Tokens may hold anything, also sequences that steer a terminal, turn the direction of text
    or are invalid in XML.  Characters in ``keep`` are not escaped.
    """

    def show(char: str) -> str:
        unseen = unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")
        unfit = ord(char) & 0xFFFE == 0xFFFE or 0xFDD0 <= ord(char) <= 0xFDEF
        if char in keep or not (unseen or unfit):
            return char
        return char.encode("unicode_escape").decode("ascii")

    return text if text.isprintable() else "".join(map(show, text))


def clipped(text: str, most: int) -> str:
    """``text`` cut after ``most`` characters, with the number of those left out."""
    if len(text) <= most:
        return text
    return f"{text[:most]} … ({len(text) - most} more characters)"


def shortened(name: str, most: int) -> str:
    """``name`` in at most ``most`` characters; text in brackets at its end stays."""
    if len(name) <= most:
        return name
    variant = re.search(r" \[[^\[\]]*\]$", name)
    ending = variant[0] if variant and len(variant[0]) < most / 2 else ""
    return f"{name[: most - len(ending) - 1].rstrip()}…{ending}"


def counted(amount: int, noun: str) -> str:
    """``1 law``, ``2 laws``."""
    return f"{amount} {noun}" if amount == 1 else f"{amount} {noun}s"


def number(value: float | None) -> str:
    """A short number: ``0.71``, ``2.1e-6``, ``NaN``, ``–`` where there is none."""
    if value is None:
        return "–"
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if value == 0:
        return "0"
    if 0.01 <= abs(value) < 1000:
        return f"{value:.3g}"
    digits, exponent = f"{value:.1e}".split("e")
    return f"{digits.removesuffix('.0')}e{int(exponent)}"


def power(value: float | None) -> str:
    """The same as `number` with the exponent raised: ``2.1×10⁻⁶``."""
    digits, _, exponent = number(value).partition("e")
    if not exponent:
        return digits
    times = "" if digits == "1" else f"{digits}×"
    return f"{times}10{exponent.translate(SUPERSCRIPTS)}"


def decades(result: Result) -> str:
    """The margin in words: ``+1.3``, ``exact``, ``not finite``, ``–`` where there is none."""
    value = result.margin
    if value is None or math.isnan(value):
        return "–"
    if value >= DECADES:
        return "exact"
    if value <= -DECADES:
        return "not finite" if _lost(result.observed) else f"≤ -{DECADES:g}"
    return f"{value:+.1f}"


def _lost(observed: float | None) -> bool:
    return observed is None or not math.isfinite(observed)


def duration(seconds: float | None) -> str:
    """``0.4 s``, ``12 s``, ``2 m 05 s``; ``–`` where it is not known."""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} m {whole % 60:02d} s"


def moment(iso: str | None) -> str:
    """``2025-11-20T09:41:07+00:00`` as ``2025-11-20 09:41:07 UTC``."""
    return (iso or "").replace("T", " ").replace("+00:00", " UTC")


def large(amount: float) -> str:
    """``4.2 M``, ``7.2 G``; small numbers as they are."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(amount) >= size:
            return f"{amount / size:.3g} {unit}"
    return f"{amount:g}"


def plain(value: Any) -> str:
    """Any value as readable text: strings as they are, numbers short, the rest as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return number(value)
    return json.dumps(value, ensure_ascii=False, default=str)
