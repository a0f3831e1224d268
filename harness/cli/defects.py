"""`assay defects`: checks the scripts that show defects, and writes their index."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from assay.harness.cli.arguments import Parser, folder
from assay.harness.report import texts
from assay.harness.results import defects
from assay.harness.results.errors import BadInput
from assay.harness.results.outputs import replace_file

FOLDER = Path("docs/defects")


def main(arguments: Sequence[str]) -> int:
    """Write the index, or run the scripts: 0 if each shows, or is gone, and fixes work, else 1."""
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
    installed = version("transformers")
    due = [each for each in scripts if not each.fixed_by(installed)]
    shown = fixed = gone = 0
    for each in scripts:
        broken, fix = defects.run(each), None
        if each in due:
            fix = defects.run(each, fixed=True) if each.fixed else None
            words = _words(broken, fix)
            shown += broken.shows is True
        else:
            words = _words_since(broken, each.fixed_in)
            gone += broken.shows is False
        print(texts.visible(f"{each.slug}: {words}: {broken.output}"), flush=True)
        if fix is not None:
            print(texts.visible(f"  fixed: {fix.output}"), flush=True)
            fixed += fix.shows is False
    fixes, past = sum(each.fixed for each in due), len(scripts) - len(due)
    print(f"{shown} of {texts.counted(len(due), 'defect')} shown")
    print(f"{fixed} of {fixes} fixes worked")
    if past:
        print(f"{gone} of {texts.counted(past, 'fixed defect')} gone")
    return 0 if (shown, fixed, gone) == (len(due), fixes, past) else 1


def _words(broken: defects.Shown, fix: defects.Shown | None) -> str:
    """What was seen without the fix and with it."""
    words = {True: "shows", False: "does not show", None: "undecided"}[broken.shows]
    if fix is None:
        return f"{words}; no fix"
    return f"{words}; {({True: 'still shows', False: 'fixed', None: 'undecided'})[fix.shows]}"


def _words_since(broken: defects.Shown, release: str) -> str:
    """What was seen of a defect that this version fixed."""
    if broken.shows is False:
        return f"fixed in {release}"
    return f"{'shows' if broken.shows else 'undecided'}, though fixed in {release}"


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
        "shows itself and every fix works, and defects that this version of transformers has "
        "fixed show themselves no longer, otherwise 1",
    )
    return parser
