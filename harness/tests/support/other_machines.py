"""For maintainers: verdicts that depend on how a machine rounds (docs/rounding.md).

``python harness/tests/support/other_machines.py MODEL [--claim ID] [--seeds N]`` runs the laws as
this machine rounds, and again as others may: with emulated rounding, odd addresses, a restricted
matrix library, and other numbers of threads.  It lists the claims with another verdict.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from assay.harness.results.verdicts import Result, Verdict
from assay.harness.runners import runner
from assay.harness.runners.runner import Broke, Request, Settings

LIBRARY = ("COMPATIBLE", "AVX2")
"""Instruction sets that MKL is restricted to, by its environment variable."""

THREADS = (1, 2, 4)
"""Numbers of threads of torch and of the matrix library."""


def machines(seeds: int) -> Iterator[tuple[str, Sequence[str], Mapping[str, str]]]:
    """Name, arguments and environment variables: of this machine, then of those emulated."""
    yield "as it is", (), {}
    for seed in range(seeds):
        yield f"rounding {seed}", (f"--emulate=rounding:{seed}", "--emulate=allocation:odd"), {}
    yield "odd addresses", ("--emulate=allocation:odd",), {}
    for name in LIBRARY:
        yield f"MKL_CBWR={name}", (), {"MKL_CBWR": name}
    for count in THREADS:
        yield f"{count} threads", (), {"OMP_NUM_THREADS": str(count)}


def differences(first: Mapping[str, Verdict], verdicts: Mapping[str, Verdict]) -> Iterator[str]:
    """The claims whose verdicts differ, in words, if both are decided."""
    for name in {**first, **verdicts}:
        one, other = first.get(name), verdicts.get(name)
        if one is not other and Verdict.INCONCLUSIVE not in (one, other):
            yield f"{name}: {one or 'missing'}, here {other or 'missing'}"


def main(
    arguments: Sequence[str],
    results: Callable[[Request, dict[str, str]], Sequence[Result]] = runner.results,
) -> int:
    """Run the claims on every machine; 1 if a verdict differs or a run broke, else 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("model")
    add("--claim", action="append", dest="claims", default=[], help="only this, such as C2")
    add("--marker", default="law", help="law (default) or finding")
    add("--profile", default="glance")
    add("--seeds", type=int, default=5, help="of rounding (default: 5)")
    options = parser.parse_args(arguments)
    first: dict[str, Verdict] | None = None
    failed = False
    for name, more, variables in machines(options.seeds):
        request = Request(
            python=Path(sys.executable),
            models=[options.model],
            settings=Settings.of(options),
            pytest_arguments=["-q", "--tb=no", *more],
            variables=variables,
        )
        try:
            verdicts = {result.name: result.verdict for result in results(request, {})}
        except Broke as error:
            print(f"{name}: its run broke ({error})")
            failed = True
            continue
        first = verdicts if first is None else first
        changed = list(differences(first, verdicts))
        failed |= bool(changed)
        print(f"{name}: {len(verdicts)} verdicts, {len(changed)} otherwise", *changed, sep="\n  ")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
