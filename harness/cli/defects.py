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
    """Write the index, or run the scripts: 0 if each defect shows and each fix works, else 1."""
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
    shown = fixed = 0
    for each in scripts:
        broken = defects.run(each)
        fix = defects.run(each, fixed=True) if each.fixed else None
        print(texts.visible(f"{each.slug}: {_words(broken, fix)}: {broken.output}"), flush=True)
        if fix is not None:
            print(texts.visible(f"  fixed: {fix.output}"), flush=True)
        shown += broken.shows is True
        fixed += fix is not None and fix.shows is False
    fixes = sum(each.fixed for each in scripts)
    print(f"{shown} of {texts.counted(len(scripts), 'defect')} shown")
    print(f"{fixed} of {fixes} fixes worked")
    return 0 if (shown, fixed) == (len(scripts), fixes) else 1


def _words(broken: defects.Shown, fix: defects.Shown | None) -> str:
    """What was seen without the fix and with it."""
    words = {True: "shows", False: "does not show", None: "undecided"}[broken.shows]
    if fix is None:
        return f"{words}; no fix"
    return f"{words}; {({True: 'still shows', False: 'fixed', None: 'undecided'})[fix.shows]}"


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
        help="run each without its fix and with it; the exit code is 0 if every defect still "
        "shows itself and every fix works, otherwise 1",
    )
    return parser
