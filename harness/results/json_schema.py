"""Builds JSON schemas from structs: strict for published records, lenient for reading them.

A record that another version of Assay wrote may have other keys; one that a disk or a person
damaged has other types, which would raise an error far from here.
"""

from __future__ import annotations

import sys
from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

DRAFT = "https://json-schema.org/draft/2020-12/schema"

Count = Annotated[int, Meta(ge=0)]
Name = Annotated[str, Meta(min_length=1)]
Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]

WHOLE = Annotated[int, Meta(ge=1 - 2**63, le=2**63 - 1)]
"""SQLite keeps no larger numbers."""

FINITE = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]


class Record(Struct, forbid_unknown_fields=True):
    """An object of the published JSON: it has exactly these keys."""


def says(description: str, **rules: Any) -> Meta:
    """The meaning of a key, and rules for its values beyond their type."""
    return Meta(description=description, **rules)


def schema(record: type[Struct], title: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a record: every key, its meaning and its unit."""
    return {"$schema": DRAFT, "title": title, **msgspec.json.schema(record)}


def mistake(value: Any, record: type[Struct]) -> str | None:
    """The first value in ``value`` of another type than ``record`` has, in words; or None.

    Types alone are compared: keys that are left out pass, as do those that the record lacks.
    """
    try:
        msgspec.convert(value, _loose_record(record))
    except (msgspec.ValidationError, RecursionError) as error:
        return str(error)
    return None


@cache
def _loose_record(record: type[Struct]) -> type[Struct]:
    """``record`` with every key optional and others allowed."""
    hints = get_type_hints(record, include_extras=True)
    keys = [
        (
            each.name,
            _loose(hints[each.name]) | UnsetType,
            msgspec.field(default=UNSET, name=each.encode_name),
        )
        for each in msgspec.structs.fields(record)
    ]
    return msgspec.defstruct(record.__name__, keys)


def _loose(kind: Any) -> Any:
    """A type without its rules."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _loose(parts[0])
    if origin is Literal:
        return reduce(or_, {_loose(type(each)) for each in parts})
    if origin in (Union, UnionType):
        return reduce(or_, map(_loose, parts))
    if origin is not None:
        return origin[tuple(map(_loose, parts))]
    if isinstance(kind, type) and issubclass(kind, Struct):
        return _loose_record(kind)
    if isinstance(kind, type) and issubclass(kind, str):
        return str
    return {int: WHOLE, float: FINITE}.get(kind, kind)
