"""Defects: short scripts that each show one defect of a library, without Assay.

A folder holds a script for each defect, ``<slug>.py``, which needs nothing but the library.  Its
docstring describes it in paragraphs of ``Key: value``; a value may continue on indented lines::

    \"\"\"A static cache loses the first token when it is filled in chunks.

    Claims: C2, C5
    Types: mamba, falcon_mamba
    Met by: generate() with prefill_chunk_size
    Seen in: transformers 4.57.1, 5.23.0
    Expected: the same logits as without a cache
    Observed: logits that are off by 0.3
    Cause: `cache_position` is read before it is moved on,
        in the second chunk and later ones.
    Fix: cache_utils.py, 321: it is moved on first
    Upstream: not reported
    \"\"\"

The first line is the title.  ``Claims`` are numbers of claims, or, where a claim has variants and
only some are meant, ``C2 [static]``, or ``none`` where no claim notices it; ``Types`` are model
types (as in ``tiny:mamba``) or patterns such as ``gemma*``; ``Met by`` says whom it concerns;
versions are those of transformers.  ``Fixed in``, which a docstring may leave out, is the version
that fixed the defect: in that one and in later ones it must not show.  A script exits with 1 where
the defect shows and with 0 where it does not.  One that ends by an exception shows nothing.

``Fix`` says where the library has to change and how, or ``none, because …``.  Line numbers are
those of the first version in ``Seen in``, unless another is named.  A script with a fix has a
function ``fix`` that changes the library as an upstream fix would, in memory, and calls it under
``--fixed`` before it measures::

    if "--fixed" in sys.argv:
        fix()
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from assay.harness.results.errors import BadInput

KEYS = (
    *("Claims", "Types", "Met by", "Seen in"),
    *("Expected", "Observed", "Cause", "Fix", "Upstream"),
)
"""The keys of every docstring, each once."""

FIXED_IN = "Fixed in"
"""The key of a docstring whose defect a version of the library has fixed."""

MARK = "<!-- Written by: assay defects -->"
"""Marks an index, so that another README is not overwritten."""

FIXED = 'if "--fixed" in sys.argv:\n    fix()\n'
"""The lines of a script that apply its fix."""

PATIENCE = 300.0
"""Seconds that a script may take."""

_KEY = re.compile(rf"({'|'.join((*KEYS, FIXED_IN))}):(?:\s+(.*))?")
_CLAIM = re.compile(r"([A-Z][0-9]+)(?:\s*\[([^\]]*)\])?")
_VERSION = re.compile(r"\d+(?:\.\w+)+")
_RELEASE = re.compile(r"\d+(?:\.\d+)+")


@dataclass(frozen=True)
class Defect:
    """One script: its path, and its docstring's title and ``fields`` by key."""

    path: Path
    source: str
    title: str
    fields: dict[str, str]

    @property
    def slug(self) -> str:
        """Its name in links."""
        return self.path.stem

    @property
    def claims(self) -> list[tuple[str, str]]:
        """The claims that it breaks: their numbers, each with the variant meant or nothing."""
        return _CLAIM.findall(self.fields["Claims"])

    @property
    def types(self) -> list[str]:
        """The model types, or patterns of them, on which it breaks them."""
        return [part.strip() for part in self.fields["Types"].split(",") if part.strip()]

    @property
    def versions(self) -> list[str]:
        """The versions of transformers that it was observed in."""
        return _VERSION.findall(self.fields["Seen in"])

    @property
    def fixed_in(self) -> str:
        """The version of transformers that fixed it, or nothing."""
        return "".join(_RELEASE.findall(self.fields.get(FIXED_IN, ""))[:1])

    def fixed_by(self, installed: str) -> bool:
        """Whether this version of transformers has it fixed."""
        return bool(self.fixed_in) and Version(self.fixed_in) <= Version(installed)

    @property
    def fixed(self) -> bool:
        """Whether it has a fix."""
        return FIXED in self.source


def read(folder: Path) -> list[Defect]:
    """Every defect of a folder, by name; `BadInput` names the script and what it lacks."""
    if not folder.is_dir():
        raise BadInput(f"defects {folder}: is not a folder")
    return [_read(path) for path in sorted(folder.glob("*.py"))]


def _read(path: Path) -> Defect:
    try:
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
    except (OSError, UnicodeDecodeError, SyntaxError, ValueError) as error:
        raise BadInput(f"defect {path}: cannot be read as Python ({error})") from error
    docstring = ast.get_docstring(tree)
    if not docstring:
        raise BadInput(f"defect {path}: has no docstring")
    title, _, rest = docstring.partition("\n")
    defect = Defect(path, source, title.strip(), _values(path, rest))
    for key, entries in (
        ("Claims", defect.claims),
        ("Types", defect.types),
        ("Seen in", defect.versions),
    ):
        if not entries and (key, defect.fields[key]) != ("Claims", "none"):
            raise BadInput(f"defect {path}: {key!r} names none: {defect.fields[key]!r}")
    if FIXED_IN in defect.fields and not defect.fixed_in:
        raise BadInput(f"defect {path}: {FIXED_IN!r} names none: {defect.fields[FIXED_IN]!r}")
    if defect.fixed == defect.fields["Fix"].startswith("none"):
        raise BadInput(f"defect {path}: 'Fix' and its function disagree whether there is a fix")
    return defect


def _values(path: Path, text: str) -> dict[str, str]:
    """The ``Key: value`` paragraphs; lines before the first of them are free text."""
    values: dict[str, str] = {}
    key = ""
    for line in text.splitlines():
        if match := _KEY.match(line):
            key = match[1]
            values[key] = (match[2] or "").strip()
        elif key and line.startswith((" ", "\t")) and line.strip():
            values[key] = f"{values[key]} {line.strip()}".strip()
        elif key and line.strip():
            raise BadInput(f"defect {path}: {line.strip()!r} belongs to no key; indent it")
    if missing := [key for key in KEYS if not values.get(key)]:
        raise BadInput(f"defect {path}: its docstring does not say {', '.join(missing)}")
    return values


@dataclass(frozen=True)
class Shown:
    """The outcome of a script: whether the defect shows, or None and why that is unknown."""

    shows: bool | None
    output: str


def run(defect: Defect, patience: float = PATIENCE, fixed: bool = False) -> Shown:
    """Run the script on its own, with this Python and its installed packages; or its fix."""
    try:
        process = subprocess.run(
            [sys.executable, str(defect.path.resolve()), *(["--fixed"] if fixed else [])],
            cwd=defect.path.parent,
            capture_output=True,
            timeout=patience,
        )
    except subprocess.TimeoutExpired:
        return Shown(None, f"it takes more than {patience:g} s")
    output, errors = (part.decode(errors="replace") for part in (process.stdout, process.stderr))
    # Python's own exit code after an exception is 1 as well.
    if "Traceback (most recent call last)" in errors or process.returncode not in (0, 1):
        last = (errors.strip() or output.strip()).splitlines()[-1:]
        return Shown(None, " ".join(["exit code", str(process.returncode), *last]))
    return Shown(process.returncode == 1, " ".join(output.split()))


def index(defects: list[Defect]) -> str:
    """The folder's README: a table of its defects, in Markdown."""
    fixes = sum(each.fixed for each in defects)
    lines = [
        "# Defects",
        "",
        MARK,
        "",
        "Each script shows one defect of transformers without Assay: it exits with 1 where the",
        "defect shows itself and with 0 where it does not.",
        "`--fixed` applies the fix to transformers in memory, with the old lines and the new ones",
        "in its function `fix`, and measures again: then it exits with 0.",
        f"{fixes} of {len(defects)} have a fix. `assay defects --run` runs all, with it and",
        "without it.",
        "",
        "The first lines of a script say what was expected and observed, the cause, the fix, and",
        "where upstream stands. Line numbers are those of the first version in which the defect",
        "was seen, unless another is named.",
        "",
        "| script | defect | claims | types | met by | seen in | fix |",
        "|---|---|---|---|---|---|---|",
    ]
    for each in defects:
        cells = [f"[{each.slug}]({each.path.name})", each.title]
        cells += [each.fields[key] for key in ("Claims", "Types", "Met by")]
        fixed = f"; fixed in {each.fixed_in}" if each.fixed_in else ""
        cells.append(each.fields["Seen in"] + fixed)
        cells.append("`--fixed`" if each.fixed else "none")
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines) + "\n"
