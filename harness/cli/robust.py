"""`assay robust`: checks whether verdicts on a model depend on how a machine rounds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from assay.harness.cli import models
from assay.harness.cli.arguments import Parser, add_claims, add_profile, add_seed, seconds, whole
from assay.harness.results.errors import BadInput
from assay.harness.results.verdicts import Result, Verdict
from assay.harness.runners import runner
from assay.harness.runners.runner import Broke, Rejected, Request, Settings

SEEDS = 5
"""The default number of seeds of rounding."""

MOST = 10_000
"""The most seeds; each takes a run of minutes."""

LIMIT = 3600.0
"""The default time limit of a run, in seconds."""

LIBRARY = ("COMPATIBLE", "AVX2")
"""Instruction sets that MKL is restricted to, by its environment variable."""

THREADS = (1, 2, 4)
"""Numbers of threads of torch and of the matrix library."""


@dataclass(frozen=True)
class Machine:
    """A way of running the claims: arguments for pytest, and environment variables."""

    name: str
    arguments: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


def machines(seeds: int) -> Iterator[Machine]:
    """The machine unchanged, and then variations that emulate others."""
    yield Machine("as it is")
    for seed in range(seeds):
        yield Machine(f"rounding {seed}", (f"--rounding={seed}", "--allocation=odd"))
    yield Machine("odd addresses", ("--allocation=odd",))
    for name in LIBRARY:
        yield Machine(f"MKL_CBWR={name}", variables={"MKL_CBWR": name})
    for count in THREADS:
        yield Machine(f"{count} threads", variables={"OMP_NUM_THREADS": str(count)})


def main(
    arguments: Sequence[str],
    check: Callable[[str, Sequence[str]], None],
    results: Callable[[Request, dict[str, str]], Sequence[Result]] = runner.results,
) -> int:
    """Run the claims on every machine; 1 if a verdict differs or a run broke, otherwise 0.

    Raises `BadInput` if the first run rejects its arguments.
    """
    options = _parser().parse_args(arguments)
    check(options.model, options.claims)
    console = Console(emoji=False, highlight=False)
    first: dict[str, Verdict] | None = None
    failed = False
    for machine in machines(options.seeds):
        request = Request(
            python=Path(sys.executable),
            models=[options.model],
            settings=Settings.of(options),
            pytest_arguments=["-q", "--tb=no", *machine.arguments],
            variables=machine.variables,
            patience=options.limit,
        )
        try:
            verdicts = {result.name: result.verdict for result in results(request, {})}
        except Broke as error:
            if first is None and isinstance(error, Rejected):
                raise BadInput(str(error)) from error
            failed = True
            console.print(f"{machine.name}: its run broke ({escape(str(error))})", soft_wrap=True)
            if first is None:
                return 1
            continue
        first = verdicts if first is None else first
        changed = [*differences(first, verdicts)]
        failed |= bool(changed)
        decided = sum(
            verdict in (Verdict.UPHELD, Verdict.REFUTED) for verdict in verdicts.values()
        )
        console.print(f"{machine.name}: {decided} decided, {len(changed)} otherwise")
        for line in changed:
            console.print(f"  {escape(line)}", soft_wrap=True)
    return int(failed)


def differences(first: Mapping[str, Verdict], verdicts: Mapping[str, Verdict]) -> Iterator[str]:
    """The claims whose verdicts differ, in words, if both are decided."""
    for name in {**first, **verdicts}:
        one, other = first.get(name), verdicts.get(name)
        if one is not other and Verdict.INCONCLUSIVE not in (one, other):
            yield f"{name}: {_word(one)}, here {_word(other)}"


def _word(verdict: Verdict | None) -> str:
    return "missing" if verdict is None else verdict.value


def _parser() -> Parser:
    parser = Parser(
        prog="assay robust",
        description="Run the claims on a model as this machine rounds, and again as others may: "
        "with rounding emulated by several seeds, models at odd addresses, a restricted matrix "
        "library, and other numbers of threads (docs/rounding.md).  Lists the claims whose "
        "verdict differs from that of the plain run; the exit code is 1 if there is any.",
    )
    add = parser.add_argument
    add_claims(parser, "only this claim; may be given several times")
    add("--marker", default="law", metavar="MARKER", help="law (default), finding, …")
    add_profile(parser, "glance")
    add_seed(parser)
    add(
        "--seeds", type=whole(0, MOST), default=SEEDS, metavar="N", help="of rounding (default: 5)"
    )
    add("--limit", type=seconds, default=LIMIT, help="time limit of a run, in seconds")
    models.add_options(parser)
    return parser
