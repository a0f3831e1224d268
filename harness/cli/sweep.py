"""`assay sweep`: claims over models × versions × dtypes × devices."""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from assay.harness.cli.arguments import Parser, file
from assay.harness.report.texts import clipped, counted, duration, visible
from assay.harness.results.errors import BadInput
from assay.harness.results.evidence import Evidence
from assay.harness.runners import environments, runner, sweep
from assay.harness.runners.runner import BROKE, FAILED, HELD, Outcome, Start
from assay.harness.runners.sweep import Job

LONGEST = 160
"""The most characters of the line that says why."""


def main(
    arguments: Sequence[str],
    expand: Callable[[list[str]], list[str]],
    start: Start = runner.process,
) -> int:
    """Run a sweep; 0 if every claim of every cell came out as expected, else 1."""
    options = _parser().parse_args(arguments)
    plan, cells, path = sweep.read(options.file)
    files = path.with_name(f"{path.name}.cells")
    states: Counter[str] = Counter()

    def ended(cell: sweep.Cell, outcome: Outcome) -> None:
        states[outcome.state] += 1
        counts = [f"{amount} {verdict}" for verdict, amount in outcome.verdicts.items() if amount]
        why = clipped(visible(" ".join([outcome.why, *outcome.notes]).strip()), LONGEST)
        words = ", ".join(filter(None, [outcome.state, why, *counts, duration(outcome.seconds)]))
        print(f"[{states.total()}/{len(cells)}] {cell.name}: {words}", flush=True)

    with Evidence.open(path) as evidence:
        files.mkdir(exist_ok=True)
        jobs = []
        for cell in cells:
            own = files / f"{cell.key}.sqlite"
            if not options.resume:
                own.unlink(missing_ok=True)
            try:
                environment, models = environments.find(cell.version), expand([cell.model])
                jobs.append(Job(cell, tuple(models), environment, own, plan.resources.cpu))
            except BadInput as error:
                ended(cell, Outcome(FAILED, str(error)))
        outcomes: Iterator[tuple[Job, Outcome]] = ((job, job.run(start)) for job in jobs)
        if jobs and not options.in_order and importlib.util.find_spec("ray") is not None:
            outcomes = sweep.on_ray(jobs, plan.resources)
        for job, outcome in outcomes:
            if job.evidence.is_file():
                with Evidence.read(job.evidence) as part:
                    evidence.merge(part)
            ended(job.cell, outcome)
    totals = ", ".join(f"{states[state]} {state}" for state in (HELD, BROKE, FAILED))
    print(f"{counted(len(cells), 'cell')}: {totals}\nevidence: {path}")
    return 0 if states[HELD] == len(cells) else 1


def _parser() -> Parser:
    parser = Parser(
        prog="assay sweep",
        description="Run claims on models × versions × dtypes × devices, as a TOML file says "
        "(docs/sweep.md).  Each combination is a cell, run in its own process; evidence is merged "
        "into one file as cells end.  Cells are tasks of Ray where Ray is installed.",
        epilog="Exit code: 0 if every claim of every cell came out as expected, 1 if not or if a "
        "cell could not be run, 4 if the file cannot be used.",
    )
    parser.add_argument("file", type=file, metavar="FILE", help="sweep.toml")
    parser.add_argument(
        "--resume", action="store_true", help="skip finished cells, and resume interrupted ones"
    )
    parser.add_argument(
        "--in-order", action="store_true", help="without Ray: one after another on this machine"
    )
    return parser
