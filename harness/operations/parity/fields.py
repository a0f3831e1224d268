"""Which fields of two models' configurations differ."""

from __future__ import annotations

import json
from typing import Any

from assay.harness.models.loading import by_design, reads
from assay.harness.models.subject import Subject


def unlike_fields(one: Subject, other: Subject) -> list[str]:
    """The fields that differ between two models of one type, each in words; those first that a
    module reads.  None for models of two types, which have other fields.
    """
    pair = [each.model.config for each in (one, other)]
    if pair[0].model_type != pair[1].model_type:
        return []
    mine, theirs = (_flat(each.to_dict()) for each in pair)
    names = [name for name in {**theirs, **mine} if mine.get(name) != theirs.get(name)]
    if not names:
        return []
    read = {name for each in (one, other) for _, name in reads.fields_read(each) or ()}

    def decides(name: str) -> tuple[bool, bool]:
        own, last = name.split(".")[0], name.rpartition(".")[2]
        return by_design.may_be_unread(last), not read & {own, last}

    return [
        f"{name} {json.dumps(mine.get(name), default=str)}, against "
        f"{json.dumps(theirs.get(name), default=str)}"
        for name in sorted(names, key=decides)
    ]


def _flat(fields: dict[str, Any], path: str = "") -> dict[str, Any]:
    """The fields of a configuration and of its parts, by their paths."""
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        if by_design.is_outside(str(name), fields):
            continue
        if isinstance(value, dict) and value:
            flat |= _flat(value, f"{path}{name}.")
        else:
            flat[f"{path}{name}"] = value
    return flat
