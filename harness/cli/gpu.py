"""`assay gpu`: what a GPU is worth and whether it computes rightly, in 25 minutes at most."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from assay.harness.cli import INTERRUPTED
from assay.harness.cli.arguments import Parser, file, positive, word
from assay.harness.results.errors import BadInput
from assay.harness.runners.gpu import look, steps
from assay.harness.runners.gpu.results import DONE, ResultFile
from assay.harness.runners.gpu.session import Session, Vanished, examine
from assay.harness.runners.runner import ROOT

OUT = "gpu.json"


def main(arguments: Sequence[str]) -> int:
    """Run the stages; 0 if every step ended and no verdict is worse than a processor's, else 1."""
    options = _parser().parse_args(arguments)
    if options.minutes > steps.MINUTES:
        raise BadInput(f"--minutes {options.minutes:g}: at most {steps.MINUTES}")
    if not (ROOT / "benchmarks").is_dir() or not (ROOT / "claims").is_dir():
        raise BadInput("the claims and benchmarks are not here; run this in a clone of Assay")
    out: Path = options.out
    if out.exists() and not options.resume:
        raise BadInput(f"--out {out}: exists; continue it with --resume, or give another path")
    if options.resume and not out.exists():
        raise BadInput(f"--resume: there is no {out}")
    facts = examine(options.device)
    look.refuse_full(facts)
    # Two kinds of results are not to be taken for one another.
    about = {**_about(facts), "rehearsal": "yes" if options.rehearse else None}
    results = ResultFile.resumed(out, about) if options.resume else ResultFile(out, about)
    results.about["doubts"] = look.doubts(facts)
    console = Console(emoji=False, stderr=True, highlight=False, soft_wrap=True)

    def tell(line: str) -> None:
        console.print(line, markup=False)

    for line in look.doubts(facts):
        tell(line)
    if facts["device"] == "cpu":
        tell(_rehearsed(options.rehearse))
    results.write()
    folder = out.with_suffix("")
    cores = os.cpu_count() or 1
    session = Session(results, folder / "steps", options.minutes, max(1, cores // 2), tell)
    session.rehearse = options.rehearse
    planned = steps.plan(
        str(facts["device"]),
        options.minutes,
        options.rehearse,
        options.stages or tuple(steps.LIMITS),
    )
    try:
        session.run(planned, options.resume)
    except Vanished as why:
        print(f"error: {why}; {_kept(results)}", file=sys.stderr)
        _show(results, session)
        return 1
    except KeyboardInterrupt:
        results.write()
        print(f"interrupted; {_kept(results)}", file=sys.stderr)
        return INTERRUPTED
    _show(results, session)
    ended = all(results.is_done(step.key) for step in planned)
    return 0 if ended and not session.unlike else 1


def _about(facts: dict[str, object]) -> dict[str, object]:
    """The facts that hold for the whole run."""
    passing = ("free", "total", "others", "blocking")
    return {name: value for name, value in facts.items() if name not in passing}


def _rehearsed(rehearse: bool) -> str:
    if rehearse:
        return "a rehearsal on the processor: small sizes, and no figure of a GPU"
    return "on the processor, in the sizes of a GPU: this may end before anything is timed"


def _kept(results: ResultFile) -> str:
    done = sum(each["state"] == DONE for each in results.steps.values())
    return f"{done} steps are in {results.path}; continue with --resume --out={results.path}"


def _show(results: ResultFile, session: Session) -> None:
    """The stages as a table, and where the results are."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("step", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("seconds", justify="right")
    table.add_column("", overflow="fold")
    for key, step in results.steps.items():
        table.add_row(escape(key), step["state"], f"{step['seconds']:.0f}", escape(step["why"]))
    console = Console(emoji=False, highlight=False)
    console.print(table)
    for line in session.unlike:
        console.print(f"worse than the processor: {line}", markup=False, soft_wrap=True)
    console.print(
        f"results: {results.path} (assay card, assay compare); logs: {session.folder}",
        markup=False,
        soft_wrap=True,
    )


def _parser() -> Parser:
    stages = "; ".join(f"{name}: {words}" for name, words in steps.WORDS.items())
    parser = Parser(
        prog="assay gpu",
        description="Check and time a GPU in stages, in order of worth, each with its own time "
        f"limit ({stages}).  Results are written as they come; docs/gpu.md.",
        epilog="Exit code: 0 if every step ended and no verdict is worse than the processor's, 1 "
        "if not, 4 if the device cannot be used.",
    )
    add = parser.add_argument
    add("--device", type=word, default="cuda", help="cuda, cuda:1, xpu, cpu (default: cuda)")
    add(
        "--out",
        type=file,
        default=Path(OUT),
        metavar="FILE",
        help=f"the result, for `assay compare` and `assay card` (default: {OUT}); logs and "
        "evidence go into a folder of the same name",
    )
    add("--resume", action="store_true", help="continue the result in --out")
    add(
        "--minutes",
        type=positive,
        default=float(steps.MINUTES),
        help=f"the most for all stages; their limits shrink alike (default: {steps.MINUTES})",
    )
    add(
        "--stage",
        dest="stages",
        action="append",
        choices=tuple(steps.LIMITS),
        help="only this stage; may be given several times (default: all)",
    )
    add(
        "--rehearse",
        action="store_true",
        help="every stage with small sizes, to see that it runs; with --device=cpu on any machine",
    )
    return parser
