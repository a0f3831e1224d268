"""Writes the atlas: one page, from evidence or from the data of an older atlas."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from assay.harness.report.atlas import encode, view
from assay.harness.report.atlas.collect import collect
from assay.harness.report.atlas.encode import Data
from assay.harness.report.atlas.flips import flips
from assay.harness.report.atlas.merging import merged
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

    One of ``evidence`` may be the page of an older atlas: it is written again with these defects
    and changes, and with the results of the other files, if any.  ``scripts`` is a folder of
    defects, ``expected`` one of expectations, ``changed`` a file of changes.  Raises `BadInput`
    for invalid input; ``out`` is then unchanged.
    """
    check_folder(out)
    known_defects = defects.read(scripts) if scripts is not None else []
    causes = change_causes.read(changed) if changed is not None else []
    older, paths = _older(list(evidence))
    if older is not None and not paths:
        room, data = ROOMS[0], older
        page = _page(data, known_defects, causes)
    else:
        collected = collect(paths, expected)
        changed_verdicts = flips(collected)
        for room in ROOMS:
            data = encode.encode(collected, changed_verdicts, room)
            if older is not None:
                data = merged(older, data)
            page = _page(data, known_defects, causes)
            if len(page.encode()) <= MOST_BYTES:
                break
    replace_file(out / "index.html", page)
    results = sum(letter in encode.LETTERS.values() for letter in data.verdicts)
    shortened = room != ROOMS[0]
    return Built(len(page.encode()), results, data.superseded, len(known_defects), shortened)


def _older(paths: list[Path]) -> tuple[Data | None, list[Path]]:
    """The data of the older atlas among the paths, if any, and the other paths."""
    pages = [path for path in paths if path.suffix == ".html"]
    if len(pages) > 1:
        raise BadInput(f"{pages[1]}: one atlas can be continued, and {pages[0]} is another")
    rest = [path for path in paths if path not in pages]
    return (read(pages[0]) if pages else None), rest


def read(path: Path) -> Data:
    """The data of an atlas's page; `BadInput` if it is none."""
    try:
        page = path.read_text(encoding="utf-8")
        if MARK not in page:
            raise BadInput(f"{path}: is not an atlas; give evidence, or an atlas's page")
        return encode.unpack(page)
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise BadInput(f"{path}: an atlas of another version; give the evidence") from error


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


def rows(path: Path) -> list[dict[str, Any]]:
    """The results of the newest version on an atlas's page, in the form of `Evidence.every`.

    Raises `BadInput` for a file that is none.
    """
    data = read(path)
    newest = len(data.versions) - 1
    return [
        {
            "claim": data.laws[spot.claim][0],
            "name": encode.name(data.laws[spot.claim]),
            "subject": data.subjects[spot.subject][1],
            "verdict": spot.verdict,
            "reason": data.strings[data.columns["reason"][at]],
            "recorded": data.runs[data.columns["run"][at]][0],
        }
        for at, spot in enumerate(encode.spots(data))
        if spot.version == newest
    ]
