"""Files of expectations: read strictly, and written by a run.

One TOML file per model::

    model = "reference:large"        # the subject as the run names it
    dtype = "float32"                # left out where it is this

    [[claim]]
    id = "C8"
    name = "…"                       # only where several tests share the number
    verdict = "refuted"
    reason = "…"                     # required for anything but upheld
    sometimes = true                 # a small budget may miss it
    versions = { transformers = ">=5.24" }  # only with these versions of packages
    device = "cuda"                  # only on this kind of device

An entry may be about several claims that have one cause.  ``claims`` replaces ``id`` and ``name``,
each as in ``--claim``: the number, and after a colon the name where it is needed::

    [[claim]]
    claims = [
        "C2: cached decoding equals recomputation [static]",
        "C8",
    ]
    verdict = "refuted"
    reason = "…"

A capability that the record of the model's type has, and that this model lacks::

    [[capability]]
    name = "mask-4d"
    reason = "…"
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from assay.harness.results import toml
from assay.harness.results.errors import BadInput
from assay.harness.results.expectations import (
    PROCESSOR,
    Expectations,
    Expected,
    Key,
    judge,
    named,
)
from assay.harness.results.outputs import replace_file
from assay.harness.results.verdicts import Result, Verdict, number_order

USUAL = "float32"
HEADER = "# Verdicts expected of this model; anything but upheld needs a reason.\n"
Text = Annotated[str, Meta(min_length=1)]


class _Entry(Struct, forbid_unknown_fields=True):
    verdict: Verdict
    id: Text | None = None
    name: str | None = None
    claims: Annotated[list[str], Meta(min_length=1)] | None = None
    reason: str = ""
    sometimes: bool = False
    versions: dict[Text, Text] = {}
    device: Text | None = None


class _Capability(Struct, forbid_unknown_fields=True):
    name: Text
    reason: Text


class _File(Struct, forbid_unknown_fields=True):
    model: Text
    dtype: Text = USUAL
    claim: list[_Entry] = []
    capability: list[_Capability] = []


def load(folder: Path) -> dict[str, Expectations]:
    """The expectations in every ``*.toml`` of the folder, by model; no folder, no expectations.

    BadInput, naming file and entry: no TOML, an unknown or missing key, an unknown verdict, a
    missing reason, the same claim twice in a file, the same model in two files.
    """
    models: dict[str, Expectations] = {}
    for path in sorted(Path(folder).glob("*.toml")):
        read = _read(path)
        if read.model in models:
            other = models[read.model].path
            raise BadInput(f"{path}: {read.model!r} has its expectations in {other} already")
        for entry in read.entries.values():
            if entry.verdict is not Verdict.UPHELD and not entry.reason.strip():
                raise BadInput(f"{entry.where}: {entry.verdict} needs a reason; write one")
        models[read.model] = read
    return models


def record(folder: Path, subject: str, results: Iterable[Result], dtype: str = USUAL) -> Path:
    """Write the verdict of every claim on ``subject`` as expected; returns the file.

    The reason stays where the verdict is the same as before.  A claim that does not apply gets
    the result's reason, one newly refuted or inconclusive an empty reason, which `load` rejects
    until a person has written it.  Entries of claims that are not among ``results``, or cannot be
    checked here, stay, so a run of a few claims loses nothing; comments do not stay.  Raises
    `BadInput` where the model's file is of another dtype.
    """
    own = (each for each in results if each.subject == subject and not each.unavailable)
    mine = {(result.id, result.name): result for result in own}
    path, old = _find(Path(folder), subject, dtype)
    if old.dtype != dtype:
        raise BadInput(f"{path}: is of {old.dtype}; a run in {dtype} cannot be recorded there")
    current = set(mine) | {(claim, None) for claim, _ in mine}
    rows = {key: entry for key, entry in old.entries.items() if key not in current}
    tests = Counter(claim for claim, _ in [*mine, *rows])
    for (claim, name), result in mine.items():
        key = claim, name if tests[claim] > 1 else None
        rows[key] = _recorded(result, old.expected(claim, name))
    replace_file(path, emit(subject, rows, dtype, old.lacks))
    return path


def _recorded(result: Result, before: Expected | None) -> Expected:
    """The new expectation of the claim, after ``before``."""
    verdict = result.verdict
    reason = result.reason if verdict is Verdict.NOT_APPLICABLE else ""
    if before is None:
        return Expected(verdict, reason, "")
    if not before.applies(PROCESSOR):
        return before
    if before.sometimes and judge(result, before).ok:
        return before
    if before.verdict is verdict and before.reason.strip():
        reason = before.reason
    sometimes = before.sometimes and verdict is not Verdict.UPHELD
    return replace(before, verdict=verdict, reason=reason, where="", sometimes=sometimes)


def emit(
    model: str,
    rows: Mapping[Key, Expected],
    dtype: str = USUAL,
    lacks: Mapping[str, str] | None = None,
) -> str:
    """The TOML of a model's entries, by number and name; claims of one cause share an entry.

    A claim whose reason is still to be written has an entry of its own.
    """
    entries: dict[object, list[Key]] = {}
    for key, row in sorted(rows.items(), key=lambda row: _order(*row[0])):
        explained = row.verdict is Verdict.UPHELD or row.reason.strip()
        together = explained and _key(_text(key)) == key
        where = row.versions, row.device
        cause = (row.verdict, row.reason, row.sometimes, where) if together else key
        entries.setdefault(cause, []).append(key)
    lines = [HEADER, f"model = {_quote(model)}"]
    if dtype != USUAL:
        lines.append(f"dtype = {_quote(dtype)}")
    for keys in entries.values():
        row = rows[keys[0]]
        lines += ["", "[[claim]]", *_named(keys), f"verdict = {_quote(row.verdict.value)}"]
        if row.reason or row.verdict is not Verdict.UPHELD:
            lines.append(f"reason = {_quote(row.reason)}")
        if row.sometimes:
            lines.append("sometimes = true")
        if row.versions:
            each = ", ".join(f"{name} = {_quote(which)}" for name, which in row.versions)
            lines.append(f"versions = {{ {each} }}")
        if row.device:
            lines.append(f"device = {_quote(row.device)}")
    for name, reason in (lacks or {}).items():
        lines += ["", "[[capability]]", f"name = {_quote(name)}", f"reason = {_quote(reason)}"]
    return "\n".join(lines) + "\n"


def _order(claim: str, name: str | None) -> tuple[Any, ...]:
    return number_order(claim), claim, name or ""


def _named(keys: list[Key]) -> list[str]:
    """The lines that name an entry's claims."""
    if len(keys) > 1:
        return ["claims = [", *(f"    {_quote(_text(key))}," for key in keys), "]"]
    claim, name = keys[0]
    return [f"id = {_quote(claim)}"] + ([] if name is None else [f"name = {_quote(name)}"])


def _text(key: Key) -> str:
    """A claim as ``claims`` names it."""
    claim, name = key
    return claim if name is None else f"{claim}: {name}"


def _key(text: str) -> Key | None:
    """The claim of an item in ``claims``; None without a number, or with an empty name."""
    claim, colon, name = (part.strip() for part in text.partition(":"))
    return (claim, name if colon else None) if claim and (name or not colon) else None


def _quote(text: str) -> str:
    """A TOML string: JSON's escapes, and one that TOML requires as well."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadInput(
            f"expectations: {text!r} is not Unicode, so it cannot be written"
        ) from error
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _find(folder: Path, subject: str, dtype: str) -> tuple[Path, Expectations]:
    """The file of a model, whatever its name, with its content; or a new path."""
    file_names = set()
    for path in sorted(folder.glob("*.toml")):
        read = _read(path)
        if read.model == subject:
            return path, read
        file_names.add(path.name.lower())
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", subject).strip("-.")[:80] or "model"
    if f"{stem}.toml".lower() in file_names:
        stem += "-" + sha256(subject.encode()).hexdigest()[:8]
    path = folder / f"{stem}.toml"
    return path, Expectations(subject, path, dtype, {})


def _read(path: Path) -> Expectations:
    """One file, its reasons possibly still empty."""
    try:
        content = msgspec.convert(toml.read(path), _File)
    except msgspec.ValidationError as error:
        raise BadInput(f"{path}: {error}") from error
    entries: dict[Key, Expected] = {}
    for number, row in enumerate(content.claim, start=1):
        where = f"{path}, claim {number}"
        for key in _keys(where, row):
            here = f"{where} ({key[0]!r})"
            if key in entries:
                entry = named(here, key)
                raise BadInput(f"{entry}: is already listed as {entries[key].where}")
            for name, which in row.versions.items():
                try:
                    SpecifierSet(which)
                except InvalidSpecifier as error:
                    raise BadInput(f"{here}: {name} {which!r} is no range of versions") from error
            versions = tuple(row.versions.items())
            entries[key] = Expected(
                row.verdict, row.reason, here, row.sometimes, versions, row.device
            )
    lacks = {row.name: row.reason for row in content.capability}
    return Expectations(content.model, path, content.dtype, entries, lacks)


def _keys(where: str, row: _Entry) -> list[Key]:
    """The claims that an entry is about."""
    if row.claims is None and row.id is not None:
        return [(row.id, row.name)]
    if row.claims is None or row.id is not None or row.name is not None:
        raise BadInput(f"{where}: give either an id, with or without a name, or claims")
    keys = []
    for text in row.claims:
        if (key := _key(text)) is None:
            raise BadInput(f"{where}: claims has {text!r}; write 'C2' or 'C2: its name'")
        keys.append(key)
    return keys
