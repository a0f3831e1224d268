"""Files of expectations: read strictly, and written by a run.

One TOML file per model::

    model = "reference:large"        # the subject as the run names it
    dtype = "float32"                # left out where it is this

    [[claim]]
    id = "C8"
    name = "…"                       # only where several tests share the number
    verdict = "refuted"
    reason = "…"                     # mandatory for anything but upheld
    sometimes = true                 # a law's search need not find it in every budget
"""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from hashlib import sha256
from pathlib import Path
from typing import Any

from harness.errors import BadInput
from harness.expectations import Expectations, Expected, judge
from harness.schema import replace_file
from harness.verdicts import Result, Verdict

KEYS = {"id": str, "name": str, "verdict": str, "reason": str, "sometimes": bool}
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
    """Write down the verdict of every claim on ``subject`` as expected; returns the file.

    The reason stays where the verdict is the same as before.  A claim that does not apply gets
    the result's reason, one newly refuted or inconclusive an empty reason, which `load` refuses
    until a person has written it.  Entries of claims that are not among ``results`` stay, so a
    run of a few claims loses nothing; comments do not.  Entries are sorted by number and name.
    Raises `BadInput` where the model's file is of another dtype.
    """
    mine = {(result.id, result.name): result for result in results if result.subject == subject}
    path, old = _find(Path(folder), subject, dtype)
    if old.dtype != dtype:
        raise BadInput(f"{path}: is of {old.dtype}; a run in {dtype} cannot be recorded there")
    seen = set(mine) | {(claim, None) for claim, _ in mine}
    kept = {key: entry for key, entry in old.entries.items() if key not in seen}
    tests = Counter(claim for claim, _ in [*mine, *kept])
    rows: dict[tuple[str, str | None], tuple[Verdict, str]] = {}
    for key, entry in kept.items():
        rows[key] = entry.verdict, entry.reason
    for (claim, name), result in mine.items():
        before = old.expected(claim, name)
        if before is not None and before.sometimes and judge(result, before).ok:
            rows[claim, name if tests[claim] > 1 else None] = before.verdict, before.reason
            continue
        reason = result.reason if result.verdict is Verdict.NOT_APPLICABLE else ""
        if before is not None and before.verdict is result.verdict and before.reason.strip():
            reason = before.reason
        rows[claim, name if tests[claim] > 1 else None] = result.verdict, reason
    sometimes = {
        key for key in rows if (was := old.expected(key[0], key[1] or "")) and was.sometimes
    }
    replace_file(path, emit(subject, rows, dtype, sometimes))
    return path


def emit(
    model: str,
    rows: dict[tuple[str, str | None], tuple[Verdict, str]],
    dtype: str = USUAL,
    sometimes: Set[tuple[str, str | None]] = frozenset(),
) -> str:
    """The TOML of a model's entries, (id, name or None) to (verdict, reason), sorted."""
    lines = [HEADER, f"model = {_quote(model)}"]
    if dtype != USUAL:
        lines.append(f"dtype = {_quote(dtype)}")
    for (claim, name), (verdict, reason) in sorted(rows.items(), key=lambda row: _order(row[0])):
        lines += ["", "[[claim]]", f"id = {_quote(claim)}"]
        if name is not None:
            lines.append(f"name = {_quote(name)}")
        lines.append(f"verdict = {_quote(verdict.value)}")
        if reason or verdict is not Verdict.UPHELD:
            lines.append(f"reason = {_quote(reason)}")
        if (claim, name) in sometimes and verdict is not Verdict.UPHELD:
            lines.append("sometimes = true")
    return "\n".join(lines) + "\n"


def _quote(text: str) -> str:
    """A TOML string: JSON's escapes are all TOML's, which only wants one character more."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadInput(
            f"expectations: {text!r} is not Unicode, so it cannot be written"
        ) from error
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _order(key: tuple[str, str | None]) -> tuple[Any, ...]:
    """C8 before C10; an entry without a name first."""
    claim, name = key
    parts = re.split(r"(\d+)", claim, flags=re.ASCII)
    return [(int(p), "") if i % 2 else (0, p) for i, p in enumerate(parts)], claim, name or ""


def _find(folder: Path, subject: str, dtype: str) -> tuple[Path, Expectations]:
    """The file of a model, whatever its name, with what stands in it; or a new name."""
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
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: not TOML: {error}") from error
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})") from error
    _check(str(path), content, {"model": str, "dtype": str, "claim": list}, {"model"})
    entries: dict[tuple[str, str | None], Expected] = {}
    for number, row in enumerate(content.get("claim", []), start=1):
        where = f"{path}, claim {number}"
        if not isinstance(row, dict):
            raise BadInput(f"{where}: not a table; write [[claim]]")
        _check(where, row, KEYS, {"id", "verdict"})
        where += f" ({row['id']!r})"
        if row["verdict"] not in [verdict.value for verdict in Verdict]:
            known = ", ".join(Verdict)
            raise BadInput(f"{where}: {row['verdict']!r} is no verdict; there are {known}")
        key = row["id"], row.get("name")
        if key in entries:
            raise BadInput(f"{where}: stands there already as {entries[key].where}")
        verdict, reason = Verdict(row["verdict"]), row.get("reason", "")
        entries[key] = Expected(verdict, reason, where, row.get("sometimes", False))
    return Expectations(content["model"], path, content.get("dtype", USUAL), entries)


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
