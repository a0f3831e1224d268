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
from hashlib import sha256
from pathlib import Path
from typing import Any

from assay.harness.results import toml
from assay.harness.results.errors import BadInput
from assay.harness.results.expectations import Expectations, Expected, Key, judge, named
from assay.harness.results.outputs import replace_file
from assay.harness.results.verdicts import Result, Verdict

FILE_KEYS = {"model": str, "dtype": str, "claim": list, "capability": list}
KEYS = {
    **{"id": str, "name": str, "claims": list},
    **{"verdict": str, "reason": str, "sometimes": bool},
}
USUAL = "float32"
HEADER = "# Verdicts expected of this model; anything but upheld needs a reason.\n"


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
    if before.sometimes and judge(result, before).ok:
        return before
    if before.verdict is verdict and before.reason.strip():
        reason = before.reason
    return Expected(verdict, reason, "", before.sometimes and verdict is not Verdict.UPHELD)


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
    for key, row in sorted(rows.items(), key=lambda row: _order(row[0])):
        explained = row.verdict is Verdict.UPHELD or row.reason.strip()
        together = explained and _key(_text(key)) == key
        cause = (row.verdict, row.reason, row.sometimes) if together else key
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
    for name, reason in (lacks or {}).items():
        lines += ["", "[[capability]]", f"name = {_quote(name)}", f"reason = {_quote(reason)}"]
    return "\n".join(lines) + "\n"


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


def _order(key: Key) -> tuple[Any, ...]:
    """C8 before C10; an entry without a name first."""
    claim, name = key
    parts = re.split(r"(\d+)", claim, flags=re.ASCII)
    return [(int(p), "") if i % 2 else (0, p) for i, p in enumerate(parts)], claim, name or ""


def _find(folder: Path, subject: str, dtype: str) -> tuple[Path, Expectations]:
    """The file of a model, whatever its name, with its content; or a new path."""
    taken = set()
    for path in sorted(folder.glob("*.toml")):
        read = _read(path)
        if read.model == subject:
            return path, read
        taken.add(path.name.lower())
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", subject).strip("-.")[:80] or "model"
    if f"{stem}.toml".lower() in taken:
        stem += "-" + sha256(subject.encode()).hexdigest()[:8]
    path = folder / f"{stem}.toml"
    return path, Expectations(subject, path, dtype, {})


def _read(path: Path) -> Expectations:
    """One file, its reasons possibly still empty."""
    content = toml.read(path)
    _check(str(path), content, FILE_KEYS, {"model"})
    entries: dict[Key, Expected] = {}
    for number, row in enumerate(content.get("claim", []), start=1):
        where = f"{path}, claim {number}"
        if not isinstance(row, dict):
            raise BadInput(f"{where}: not a table; write [[claim]]")
        _check(where, row, KEYS, {"verdict"})
        for key in _keys(where, row):
            here = f"{where} ({key[0]!r})"
            if row["verdict"] not in [verdict.value for verdict in Verdict]:
                known = ", ".join(Verdict)
                raise BadInput(f"{here}: {row['verdict']!r} is not a verdict; there are {known}")
            if key in entries:
                entry = named(here, key)
                raise BadInput(f"{entry}: is already listed as {entries[key].where}")
            verdict, reason = Verdict(row["verdict"]), row.get("reason", "")
            entries[key] = Expected(verdict, reason, here, row.get("sometimes", False))
    dtype = content.get("dtype", USUAL)
    return Expectations(content["model"], path, dtype, entries, _lacks(path, content))


def _lacks(path: Path, content: Mapping[str, Any]) -> dict[str, str]:
    """The capabilities that the model lacks, each with its reason."""
    lacks: dict[str, str] = {}
    for number, row in enumerate(content.get("capability", []), start=1):
        where = f"{path}, capability {number}"
        if not isinstance(row, dict):
            raise BadInput(f"{where}: not a table; write [[capability]]")
        _check(where, row, {"name": str, "reason": str}, {"name", "reason"})
        if row["name"] in lacks:
            raise BadInput(f"{where}: {row['name']!r} is already listed")
        lacks[row["name"]] = row["reason"]
    return lacks


def _keys(where: str, row: dict[str, Any]) -> list[Key]:
    """The claims that an entry is about."""
    if "claims" not in row:
        _check(where, row, KEYS, {"id"})
        return [(row["id"], row.get("name"))]
    for other in ("id", "name"):
        if other in row:
            raise BadInput(f"{where}: {other} and claims; give one or the other")
    _check(where, row, KEYS, {"claims"})
    keys = []
    for text in row["claims"]:
        if not isinstance(text, str):
            raise BadInput(f"{where}: claims has {text!r}, not a str")
        if (key := _key(text)) is None:
            raise BadInput(f"{where}: claims has {text!r}; write 'C2' or 'C2: its name'")
        keys.append(key)
    return keys


def _check(where: str, table: dict[str, Any], types: Mapping[str, type], needed: set[str]) -> None:
    """BadInput for a key that is unknown, missing, of another type, or empty though needed."""
    for key, value in table.items():
        if key not in types:
            raise BadInput(f"{where}: unknown key {key!r}; there are {', '.join(types)}")
        if not isinstance(value, types[key]):
            raise BadInput(f"{where}: {key} is {value!r}, not a {types[key].__name__}")
    for key in sorted(needed):
        if not table.get(key):
            raise BadInput(f"{where}: {key} is missing or empty")
