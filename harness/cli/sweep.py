"""`assay sweep`: claims over models × versions × dtypes × devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from rich.console import Console

from assay.harness.cli.arguments import Parser, file, word
from assay.harness.report.texts import counted
from assay.harness.results.errors import BadInput
from assay.harness.runners import environments
from assay.harness.runners.runner import BROKE, FAILED, HELD, ROOT, Outcome
from assay.harness.runners.sweeps import cluster
from assay.harness.runners.sweeps.board import Board
from assay.harness.runners.sweeps.cell import Job, News, in_order
from assay.harness.runners.sweeps.ledger import Ledger
from assay.harness.runners.sweeps.plan import Sweep, read

if TYPE_CHECKING:  # it imports torch, which only cells need
    from assay.harness.cli.models import Load


def main(arguments: Sequence[str], load: Load) -> int:
    """Run a sweep; 0 if every claim of every cell came out as expected, else 1."""
    options = _parser().parse_args(arguments)
    sweep = read(options.file)
    if not (ROOT / "claims").is_dir():
        raise BadInput("the claims are not here; run this in a clone of Assay")
    for claim_path in dict.fromkeys(each for cell in sweep.cells for each in cell.settings.paths):
        if not (ROOT / claim_path.partition("::")[0]).exists():
            where = f"{options.file.absolute()}: select.claims"
            raise BadInput(f"{where}: {claim_path} is not in the clone ({ROOT})")
    console = Console(emoji=False, highlight=False)
    states: Counter[str] = Counter()
    with ExitStack() as opened:
        ledger = opened.enter_context(Ledger(sweep, options.resume))
        run = _runner(options.in_order, options.ray, sweep, console, opened)
        board = opened.enter_context(Board(sweep.cells, console))
        jobs = []
        for cell in sweep.cells:
            try:
                environment = environments.find(cell.version)
            except BadInput as error:
                outcome: Outcome | None = Outcome(FAILED, str(error))
            else:
                digest = _digest(sweep, load)
                outcome = (
                    ledger.stored_outcome(cell, environment, digest) if options.resume else None
                )
            if outcome is not None:
                states[outcome.state] += 1
                board.ended(cell, outcome, stored=outcome.state != FAILED)
                continue
            files, resources = ledger.folder / cell.key, sweep.resources
            python = environment.python
            jobs.append(Job(cell, python, sweep.folder, files, resources.cpu, sweep.retries))
        for job, news in run(jobs) if jobs else ():
            if news is None:
                board.running(job.cell)
                continue
            ledger.take(job, news)
            states[news.state] += 1
            board.ended(job.cell, news)
        runs, claims = len(ledger.evidence.runs()), sum(ledger.evidence.counts().values())
        logs = any(job.log.exists() for job in jobs)
    totals = ", ".join(f"{states[state]} {state}" for state in (HELD, BROKE, FAILED))
    console.print(f"{counted(len(sweep.cells), 'cell')}: {totals}", soft_wrap=True)
    stored = f"{counted(runs, 'run')}, {counted(claims, 'claim')}"
    console.print(f"evidence: {sweep.evidence} ({stored})", soft_wrap=True, markup=False)
    if logs:
        console.print(f"logs: {ledger.folder}", soft_wrap=True, markup=False)
    return 0 if states[HELD] == len(sweep.cells) else 1


def _runner(
    alone: bool, address: str | None, sweep: Sweep, console: Console, opened: ExitStack
) -> Callable[[Sequence[Job]], Iterator[News]]:
    """Returns what runs jobs: Ray where it is installed and not ruled out, else in order."""
    if alone and address is not None:
        raise BadInput("--in-order and --ray: choose one")
    if alone:
        return in_order
    if not cluster.installed():
        if address is not None:
            raise BadInput("--ray: Ray is not installed; pip install -e '.[ray]'")
        console.print("Ray is not installed: cells are run in order on this machine")
        return in_order

    def run(jobs: Sequence[Job]) -> Iterator[News]:
        ray = opened.enter_context(cluster.connected(address))
        return cluster.outcomes(ray, jobs, sweep.resources)

    return run


def _digest(sweep: Sweep, load: Load) -> Callable[[str], str | None]:
    """Returns a function for the digest of a model; None for one that comes with Assay.

    A folder, or a model of the hub, may have changed since an earlier run.  One that cannot be
    read here has an empty digest, which matches none.
    """

    def digest(model: str) -> str | None:
        if "/" not in model and not (sweep.folder / model).exists():
            return None
        from assay.harness.models.runs import Options

        folder = sweep.folder / model
        try:
            return load(str(folder) if folder.exists() else model, Options()).digest
        except BadInput:
            return ""

    return digest


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
        "--resume",
        action="store_true",
        help="skip cells that the evidence has, and resume interrupted ones",
    )
    parser.add_argument(
        "--ray",
        type=word,
        metavar="ADDRESS",
        help="join the cluster there (host:port, ray://host:port, auto), or start one here "
        "(local); default: a running cluster, else one that is started here",
    )
    parser.add_argument(
        "--in-order", action="store_true", help="without Ray: one after another on this machine"
    )
    return parser
