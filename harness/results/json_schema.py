"""Builds the JSON Schema of records from their structs.

What a description adds to a type, such as a minimum, is for readers of the JSON: a stored number
out of its range must not make a file unreadable.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

DRAFT = "https://json-schema.org/draft/2020-12/schema"

Count = Annotated[int, Meta(extra_json_schema={"minimum": 0})]
Name = Annotated[str, Meta(extra_json_schema={"minLength": 1})]


class Record(Struct, forbid_unknown_fields=True):
    """An object of the published JSON: it has exactly these keys."""


class FrozenRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """A `Record` that does not change, so that it may be a default."""


def says(description: str, **rules: Any) -> Meta:
    """The meaning of a key, and rules for its values beyond their type."""
    return Meta(description=description, **rules)


def schema(record: type[Struct], title: str, *others: type[Struct]) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a record: every key, its meaning and its unit.

    ``others`` are records that it refers to by name.  Keys with a default are always written, so
    they are required as well.
    """
    (top, *_), records = msgspec.json.schema_components(
        (record, *others), ref_template="#/$defs/{name}"
    )
    for each in records.values():
        keys = each.get("properties", {})
        required = set(each.get("required", ()))
        required |= {name for name, key in keys.items() if "default" in key}
        for key in keys.values():
            key.pop("default", None)
        if keys:
            each["required"] = [name for name in keys if name in required]
    return {"$schema": DRAFT, "title": title, **top, "$defs": records}
