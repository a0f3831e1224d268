"""Defects: short scripts that each show one defect of a library, without Assay.

A folder holds a script for each defect, ``<slug>.py``, which needs nothing but the library.  Its
docstring says what there is to know, in paragraphs of ``Key: value``; a value may go on over
indented lines::

    \"\"\"A static cache loses the first token when it is filled in chunks.

    Claims: C2, C5
    Types: mamba, falcon_mamba
    Met by: generate() with prefill_chunk_size
    Seen in: transformers 4.57.1, 5.23.0
    Expected: the same logits as without a cache
    Observed: logits that are off by 0.3
    Cause: `cache_position` is read before it is moved on,
        in the second chunk and later ones.
    Upstream: not reported
    \"\"\"

The first line is the title.  ``Claims`` are numbers of claims, or, where a claim has variants and
only some are meant, ``C2 [static]``, or ``none`` where no claim sees it; ``Types`` are model types
(as in ``tiny:mamba``) or patterns such as ``gemma*``; ``Met by`` says whom it concerns; versions
are those of transformers.  A script has fewer than 40 lines of code, blank lines and comments
aside.  It exits with 1 where the defect shows itself and with 0 where it does not.  One that ends
by an exception has shown nothing.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from assay.harness.results.errors import BadInput

KEYS = ("Claims", "Types", "Met by", "Seen in", "Expected", "Observed", "Cause", "Upstream")
"""What every docstring has to say, each once."""

MARK = "<!-- Written by: assay defects -->"
"""Stands in an index, so that another README is not written over."""

MOST_LINES = 39
"""Lines of code in a script, blank lines, comments and the docstring aside."""

PATIENCE = 300.0
"""Seconds that a script may take."""

_KEY = re.compile(rf"({'|'.join(KEYS)}):(?:\s+(.*))?")
_CLAIM = re.compile(r"([A-Z][0-9]+)(?:\s*\[([^\]]*)\])?")
_VERSION = re.compile(r"\d+(?:\.\w+)+")
_SLUG = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


@dataclass(frozen=True)
class Defect:
    """One script: its path, and what its docstring says of it."""

    path: Path
    source: str
    title: str
    told: dict[str, str]

    @property
    def slug(self) -> str:
        """Its name in links."""
        return self.path.stem

    @property
    def claims(self) -> list[tuple[str, str]]:
        """The claims that it breaks: their numbers, and the variant that is meant or nothing."""
        return _CLAIM.findall(self.told["Claims"])

    @property
    def types(self) -> list[str]:
        """The model types, or patterns of them, on which it does."""
        return [part.strip() for part in self.told["Types"].split(",") if part.strip()]

    @property
    def versions(self) -> list[str]:
        """The versions of transformers in which it was seen."""
        return _VERSION.findall(self.told["Seen in"])

    def fits(self, model_types: Iterable[str]) -> bool:
        """Whether it says to show itself on one of these model types."""
        return any(fnmatchcase(name, each) for name in model_types for each in self.types)

    def breaks(self, claim: str, name: str) -> bool:
        """Whether it says to break the claim of this number and name."""
        return any(
            claim == number and (not variant or name.endswith(f" [{variant}]"))
            for number, variant in self.claims
        )


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
    if not _SLUG.fullmatch(path.stem):
        raise BadInput(f"defect {path}: a name has letters, digits, '-' and '_' only")
    told = ast.get_docstring(tree)
    if not told:
        raise BadInput(f"defect {path}: has no docstring")
    title, _, rest = told.partition("\n")
    defect = Defect(path, source, title.strip(), _values(path, rest))
    for key, found in (
        ("Claims", defect.claims),
        ("Types", defect.types),
        ("Seen in", defect.versions),
    ):
        if not found and (key, defect.told[key]) != ("Claims", "none"):
            raise BadInput(f"defect {path}: {key!r} names none: {defect.told[key]!r}")
    if (lines := _lines(source, tree)) > MOST_LINES:
        raise BadInput(f"defect {path}: has {lines} lines of code, and at most {MOST_LINES} do")
    return defect


def _values(path: Path, text: str) -> dict[str, str]:
    """The ``Key: value`` paragraphs; lines before the first of them say what they like."""
    told: dict[str, str] = {}
    key = ""
    for line in text.splitlines():
        if found := _KEY.match(line):
            key = found[1]
            if key in told:
                raise BadInput(f"defect {path}: says {key!r} twice")
            told[key] = (found[2] or "").strip()
        elif key and line.startswith((" ", "\t")) and line.strip():
            told[key] = f"{told[key]} {line.strip()}".strip()
        elif key and line.strip():
            raise BadInput(f"defect {path}: {line.strip()!r} belongs to no key; indent it")
    if missing := [key for key in KEYS if not told.get(key)]:
        raise BadInput(f"defect {path}: its docstring does not say {', '.join(missing)}")
    return told


def _lines(source: str, tree: ast.Module) -> int:
    """Lines after the docstring that are neither blank nor a comment."""
    after = source.splitlines()[tree.body[0].end_lineno :]
    return sum(1 for line in after if line.strip() and not line.strip().startswith("#"))


@dataclass(frozen=True)
class Shown:
    """What came of running a script: whether the defect shows, or why that cannot be told."""

    shows: bool | None
    output: str


def run(defect: Defect, patience: float = PATIENCE) -> Shown:
    """Run the script on its own, with this Python and what is installed for it."""
    try:
        done = subprocess.run(
            [sys.executable, str(defect.path.resolve())],
            cwd=defect.path.parent,
            capture_output=True,
            timeout=patience,
        )
    except subprocess.TimeoutExpired:
        return Shown(None, f"it takes more than {patience:g} s")
    output, errors = (part.decode(errors="replace") for part in (done.stdout, done.stderr))
    # Python's own exit code after an exception is 1 as well.
    if "Traceback (most recent call last)" in errors or done.returncode not in (0, 1):
        last = (errors.strip() or output.strip()).splitlines()[-1:]
        return Shown(None, " ".join(["exit code", str(done.returncode), *last]))
    return Shown(done.returncode == 1, " ".join(output.split()))


def index(found: list[Defect]) -> str:
    """The folder's README: a table of its defects, in Markdown."""
    lines = [
        "# Defects",
        "",
        MARK,
        "",
        "Each script shows one defect of transformers without Assay: it exits with 1 where the",
        "defect shows itself and with 0 where it does not.",
        "`assay defects --run` runs them all.",
        "",
        "| script | defect | claims | types | met by | seen in |",
        "|---|---|---|---|---|---|",
    ]
    for each in found:
        cells = [f"[{each.slug}]({each.path.name})", each.title]
        cells += [each.told[key] for key in ("Claims", "Types", "Met by", "Seen in")]
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    for each in found:
        lines += ["", f"## {each.title}", "", f"[`{each.path.name}`]({each.path.name})", ""]
        lines += [
            f"- {key}: {each.told[key]}" for key in ("Expected", "Observed", "Cause", "Upstream")
        ]
    return "\n".join(lines) + "\n"
