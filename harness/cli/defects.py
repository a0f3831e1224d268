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
    asked = _parser().parse_args(arguments)
    found = defects.read(asked.folder)
    if not found:
        raise BadInput(f"defects {asked.folder}: holds no script")
    if not asked.run:
        index = asked.folder / "README.md"
        if index.is_file() and defects.MARK not in index.read_text("utf-8", errors="replace"):
            raise BadInput(f"{index}: is not an index of defects; move it away")
        replace_file(index, defects.index(found))
        print(f"{index}: {texts.counted(len(found), 'defect')}")
        return 0
    shown = 0
    for each in found:
        came = defects.run(each)
        words = {True: "shows", False: "does not show", None: "cannot be told"}[came.shows]
        print(texts.visible(f"{each.slug}: {words}: {came.output}"), flush=True)
        shown += came.shows is True
    print(f"{shown} of {texts.counted(len(found), 'defect')} shown")
    return 0 if shown == len(found) else 1


def _parser() -> Parser:
    parser = Parser(
        prog="assay defects",
        description="Check the scripts that each show a defect, and write README.md, their index. "
        "What a script has to say is in harness/results/defects.py.",
    )
    add = parser.add_argument
    add("folder", nargs="?", type=folder, default=FOLDER, help=f"of scripts (default: {FOLDER})")
    add(
        "--run",
        action="store_true",
        help="run each; the exit code is 0 if every defect still shows itself, otherwise 1",
    )
    return parser
