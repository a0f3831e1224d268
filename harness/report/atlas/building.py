"""Puts the atlas together, and its folder in its place: whole, or not at all."""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from assay.harness.report.atlas import encode, view
from assay.harness.report.atlas.collect import Collected, collect
from assay.harness.report.atlas.flips import flips, standing
from assay.harness.report.templates import environment
from assay.harness.results import defects
from assay.harness.results.defects import Defect
from assay.harness.results.errors import BadInput

MOST_BYTES = 3_000_000
"""Of the whole folder; where it would be more, counterexamples are told in less."""

ROOMS = (600, 240, 100, 0)
"""Characters of a counterexample's input, less and less (see `encode.encoded`)."""

MARK = '<meta name="generator" content="Assay atlas">'
"""By this line a folder's page is known as an atlas, which another one may replace."""

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Built:
    """What was written: bytes in all, results shown, and older ones left out."""

    bytes: int
    results: int
    superseded: int
    defects: int
    shortened: bool


def build(
    evidence: Iterable[Path],
    out: Path,
    scripts: Path | None = None,
    expected: Path | None = None,
) -> Built:
    """Write the atlas of the ``evidence`` files into the folder ``out``.

    ``scripts`` is a folder of defects, ``expected`` one of expectations.  Raises `BadInput` for
    whatever cannot be used; ``out`` is then as it was before.
    """
    check_folder(out)
    told = defects.read(scripts) if scripts is not None else []
    found = collect(evidence, expected)
    files, shortened = _files(found, told)
    with _placed(out) as draft:
        for name, text in files.items():
            path = draft / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(text.encode())
    size = sum(len(text.encode()) for text in files.values())
    return Built(size, len(found.cells), found.superseded, len(told), shortened)


def _files(found: Collected, told: Sequence[Defect]) -> tuple[dict[str, str], bool]:
    """Every file's text by its path in the folder, and whether counterexamples are cut."""
    turned = flips(found)
    stand = standing(turned)
    shown = view.page(found, turned, told)
    files = {
        f"defects/{each['slug']}.html": _render("defect", {"defect": each}, "defect.js")
        for each in shown["defects"]
    }
    for room in ROOMS:
        data = encode.encoded(found, stand, room)
        data["defects"] = encode.explanations(found, told)
        packed = encode.packed(data)
        files["index.html"] = _render("atlas", {"page": shown, "data": packed}, "atlas.js")
        if sum(len(text.encode()) for text in files.values()) <= MOST_BYTES:
            break
    return files, room != ROOMS[0]


def _render(name: str, values: dict[str, Any], script: str) -> str:
    code = "\n".join((_HERE / file).read_text(encoding="utf-8") for file in ("theme.js", script))
    # The browser runs this script and no other: its digest is in the page's policy.
    digest = hashlib.sha256(f"\n{code}".encode()).digest()
    return (
        environment(_HERE)
        .get_template(f"{name}.html.jinja")
        .render(
            **values,
            mark=Markup(MARK),
            style=Markup((_HERE / "atlas.css").read_text(encoding="utf-8")),
            script=Markup(code),
            script_digest=base64.b64encode(digest).decode("ascii"),
        )
    )


def check_folder(out: Path) -> None:
    """Refuse a folder that is something else, or holds anything but an atlas."""
    if out.exists() and not out.is_dir():
        raise BadInput(f"--out {out}: is a file; give a folder's path")
    index = out / "index.html"
    try:
        if out.is_dir() and any(out.iterdir()):
            if index.is_file() and MARK in index.read_text(encoding="utf-8", errors="replace"):
                return
            raise BadInput(f"--out {out}: holds something else; give an empty or a new folder")
    except OSError as error:
        raise BadInput(f"--out {out}: cannot be read ({error.strerror})") from error


@contextmanager
def _placed(out: Path) -> Iterator[Path]:
    """A new folder to write into, which takes the place of ``out`` if all goes well."""
    target = Path(os.path.realpath(out))  # a loop of links is left as it is
    name = f".assay-{secrets.token_hex(8)}"
    draft, old = target.with_name(f"{name}.tmp"), target.with_name(f"{name}.old")
    try:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            draft.mkdir()
            yield draft
            if target.exists():
                target.rename(old)
            try:
                draft.rename(target)
            except OSError:
                if old.exists():
                    old.rename(target)
                raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)
            if target.exists():
                shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        taken = isinstance(error, FileExistsError | NotADirectoryError)
        why = "its folder is a file" if taken else error.strerror
        raise BadInput(f"--out {out}: cannot be written ({why})") from error
