"""`assay atlas`: an offline page of the results in evidence files."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from assay.harness.cli.arguments import Parser, file, folder
from assay.harness.report import texts

DEFECTS, EXPECTATIONS = Path("docs/defects"), Path("claims/expectations")
CHANGES = Path("docs/flips.toml")


def main(arguments: Sequence[str]) -> int:
    """Write the atlas, and print its counts."""
    from assay.harness.report.atlas import build

    options = _parser().parse_args(arguments)
    began = time.perf_counter()
    built = build(
        options.evidence,
        options.out,
        _or_default(options.defects, DEFECTS),
        _or_default(options.expectations, EXPECTATIONS),
        _or_default(options.changes, CHANGES),
    )
    summary = f"{options.out / 'index.html'}: {texts.counted(built.results, 'result')}"
    if built.superseded:
        summary += f" ({texts.counted(built.superseded, 'older one')} left out)"
    summary += f", {texts.counted(built.defects, 'defect')}, {texts.large(built.bytes)}B"
    print(f"{summary}, in {texts.duration(time.perf_counter() - began)}")
    if built.shortened:
        print("counterexamples are cut short, or the page would be too large")
    return 0


def _or_default(path: Path | None, default: Path) -> Path | None:
    """``path``, or else the default if it exists."""
    return path if path is not None else default if default.exists() else None


def _parser() -> Parser:
    parser = Parser(
        prog="assay atlas",
        description="Write one offline page of the results in evidence files: which "
        "laws hold on which models, in which versions of transformers.  One of the files may be "
        "the page of an atlas: its results are kept, those of the evidence are added, and the "
        "present defects and changes are shown.",
    )
    add = parser.add_argument
    add(
        "evidence",
        nargs="+",
        type=file,
        metavar="EVIDENCE",
        help="a file that --evidence wrote, or the index.html of an atlas",
    )
    add(
        "--out",
        type=folder,
        required=True,
        metavar="FOLDER",
        help="output folder: new, empty, or an older atlas",
    )
    add("--defects", type=folder, metavar="FOLDER", help=f"scripts (default: {DEFECTS}, if there)")
    add("--changes", type=file, metavar="FILE", help=f"causes (default: {CHANGES}, if there)")
    add(
        "--expectations",
        type=Path,
        metavar="FOLDER",
        help=f"expectations of models (default: {EXPECTATIONS}, if there)",
    )
    return parser
