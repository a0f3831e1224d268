"""`assay defects`: checks the scripts that show defects, and writes their index."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from assay.harness.cli.arguments import Parser, folder
from assay.harness.report import texts
from assay.harness.results import defects
from assay.harness.results.errors import BadInput
from assay.harness.results.outputs import replace_file

FOLDER = Path("docs/defects")


def main(arguments: Sequence[str]) -> int:
    """Write the index, or run the scripts: then 1 unless each shows its defect, otherwise 0."""
    options = _parser().parse_args(arguments)
    scripts = defects.read(options.folder)
    if not scripts:
        raise BadInput(f"defects {options.folder}: holds no script")
    if not options.run:
        index = options.folder / "README.md"
        if index.is_file() and defects.MARK not in index.read_text("utf-8", errors="replace"):
            raise BadInput(f"{index}: is not an index of defects; move it away")
        replace_file(index, defects.index(scripts))
        print(f"{index}: {texts.counted(len(scripts), 'defect')}")
        return 0
    count = 0
    for each in scripts:
        outcome = defects.run(each)
        words = {True: "shows", False: "does not show", None: "undecided"}[outcome.shows]
        print(texts.visible(f"{each.slug}: {words}: {outcome.output}"), flush=True)
        count += outcome.shows is True
    print(f"{count} of {texts.counted(len(scripts), 'defect')} shown")
    return 0 if count == len(scripts) else 1


def _parser() -> Parser:
    parser = Parser(
        prog="assay defects",
        description="Check the scripts that each show a defect, and write README.md, their index. "
        "harness/results/defects.py describes the format of a script.",
    )
    add = parser.add_argument
    add("folder", nargs="?", type=folder, default=FOLDER, help=f"of scripts (default: {FOLDER})")
    add(
        "--run",
        action="store_true",
        help="run each; the exit code is 0 if every defect still shows itself, otherwise 1",
    )
    return parser
