"""Writes the atlas: one page, from evidence or from the data of an older atlas."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from assay.harness.report.atlas import encode, view
from assay.harness.report.atlas.collect import collect
from assay.harness.report.atlas.encode import Data
from assay.harness.report.atlas.flips import flips
from assay.harness.report.templates import render
from assay.harness.results import change_causes, defects
from assay.harness.results.change_causes import Change
from assay.harness.results.defects import Defect
from assay.harness.results.errors import BadInput
from assay.harness.results.outputs import replace_file

MOST_BYTES = 3_000_000
"""The most bytes of the page; beyond that, counterexamples are cut."""

ROOMS = (600, 240, 100, 0)
"""Characters of a counterexample's input, in decreasing order (see `encode.encode`)."""

MARK = '<meta name="generator" content="Assay atlas">'
"""The line that identifies an atlas, which another one may replace, or be built from."""


@dataclass(frozen=True)
class Built:
    """Counts of a written atlas: bytes, results shown, and older ones left out."""

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
    changed: Path | None = None,
) -> Built:
    """Write the atlas of the ``evidence`` files as ``out``/index.html.

    ``evidence`` may be the page of an older atlas alone: it is written again with these defects
    and changes.  ``scripts`` is a folder of defects, ``expected`` one of expectations,
    ``changed`` a file of changes.  Raises `BadInput` for invalid input; ``out`` is then
    unchanged.
    """
    check_folder(out)
    known_defects = defects.read(scripts) if scripts is not None else []
    causes = change_causes.read(changed) if changed is not None else []
    paths, rooms = list(evidence), ROOMS
    if older := _older(paths):
        room, page = ROOMS[0], _page(older, known_defects, causes)
        data = older
    else:
        collected = collect(paths, expected)
        changed_verdicts = flips(collected)
        for room in rooms:
            data = encode.encode(collected, changed_verdicts, room)
            page = _page(data, known_defects, causes)
            if len(page.encode()) <= MOST_BYTES:
                break
    replace_file(out / "index.html", page)
    results = sum(letter in encode.LETTERS.values() for letter in data.verdicts)
    shortened = room != ROOMS[0]
    return Built(len(page.encode()), results, data.superseded, len(known_defects), shortened)


def _older(paths: list[Path]) -> Data | None:
    """The data of an older atlas, if ``paths`` is its page alone."""
    if len(paths) != 1 or paths[0].suffix != ".html":
        return None
    try:
        page = paths[0].read_text(encoding="utf-8")
        if MARK not in page:
            raise BadInput(f"{paths[0]}: is not an atlas; give evidence, or an atlas's page")
        return encode.unpack(page)
    except OSError as error:
        raise BadInput(f"{paths[0]}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise BadInput(f"{paths[0]}: an atlas of another version; give the evidence") from error


def _page(data: Data, known_defects: list[Defect], causes: list[Change]) -> str:
    data.defects = view.explanations(data, known_defects)
    return render(
        "atlas",
        ["atlas/atlas.css"],
        ["atlas/theme.js", "atlas/sections.js", "atlas/atlas.js"],
        page=view.page(data, known_defects, causes),
        data=encode.pack(data),
        mark=Markup(MARK),
    )


def check_folder(out: Path) -> None:
    """Raise `BadInput` for a path that is not a folder, or holds anything but an atlas."""
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
