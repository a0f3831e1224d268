"""Records that were read again: whether every entry is of the type that its schema says.

A record that another version of Assay wrote may have other keys; one that a disk or a person
damaged has other types, which would come up as an error far from here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

MOST = 2**63
"""Whole numbers below it are all that SQLite keeps."""

TYPES = {"string": str, "array": list, "object": dict, "boolean": bool, "null": type(None)}
"""What JSON's other types are in Python."""


def mistake(value: Any, schema: Mapping[str, Any], where: str = "it") -> str | None:
    """What in ``value`` is of another type than its JSON schema says, or None.

    Types alone are compared: keys that are left out pass, as do those that are not in the schema.
    """
    kinds = schema.get("type", ())
    kinds = (kinds,) if isinstance(kinds, str) else kinds
    if kinds and not any(_is(value, kind) for kind in kinds):
        return f"{where} is no {' or '.join(kinds)}"
    if isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            return f"{where} has {len(value)} entries"
        parts = [(where, each, schema.get("items")) for each in value]
    elif isinstance(value, dict):
        known, others = schema.get("properties", {}), schema.get("additionalProperties")
        parts = [(f"{k!s:.40}", each, known.get(k, others)) for k, each in value.items()]
    else:
        return None
    wrong = (mistake(each, said, name) for name, each, said in parts if isinstance(said, dict))
    return next(filter(None, wrong), None)


def _is(value: Any, kind: str) -> bool:
    if kind == "number":
        whole = _is(value, "integer")
        return whole or (isinstance(value, float) and math.isfinite(value))
    if kind == "integer":
        return type(value) is int and abs(value) < MOST
    return isinstance(value, TYPES[kind])
