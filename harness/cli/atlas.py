"""`assay atlas`: an offline page of what evidence files say."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from assay.harness.cli.arguments import Parser, file
from assay.harness.report import texts

DEFECTS, EXPECTATIONS = Path("docs/defects"), Path("claims/expectations")


def main(arguments: Sequence[str]) -> int:
    """Write the atlas, and say what is in it."""
    from assay.harness.report.atlas import build

    asked = _parser().parse_args(arguments)
    began = time.perf_counter()
    built = build(
        asked.evidence,
        asked.out,
        _folder(asked.defects, DEFECTS),
        _folder(asked.expectations, EXPECTATIONS),
    )
    summary = f"{asked.out / 'index.html'}: {texts.counted(built.results, 'result')}"
    if built.superseded:
        summary += f" ({texts.counted(built.superseded, 'older one')} left out)"
    summary += f", {texts.counted(built.defects, 'defect')}, {texts.large(built.bytes)}B"
    print(f"{summary}, in {texts.duration(time.perf_counter() - began)}")
    if built.shortened:
        print("counterexamples are cut short, or the page would be too large")
    return 0


def _folder(asked: Path | None, usual: Path) -> Path | None:
    """The folder that is named, or the usual one where it is there."""
    return asked if asked is not None else usual if usual.is_dir() else None


def _parser() -> Parser:
    parser = Parser(
        prog="assay atlas",
        description="Write a folder with one page, which needs no network, of what evidence files "
        "say: which laws hold on which models, in which versions of transformers.",
    )
    add = parser.add_argument
    add("evidence", nargs="+", type=file, metavar="EVIDENCE", help="a file that --evidence wrote")
    add("--out", type=Path, required=True, metavar="FOLDER", help="new, empty, or an older atlas")
    add("--defects", type=Path, metavar="FOLDER", help=f"scripts (default: {DEFECTS}, if there)")
    add(
        "--expectations",
        type=Path,
        metavar="FOLDER",
        help=f"what is expected of models (default: {EXPECTATIONS}, if there)",
    )
    return parser
