"""For maintainers: how often laws are refuted on sound models (docs/power.md).

``python harness/tests/support/false_positives.py EVIDENCE [--seeds N] [--family NAME] [--leaks]``
runs the laws on a model of each family from seeds 1 to N in three dtypes, resumes where it
stopped, and prints the rates as Markdown.  With ``--leaks`` it prints the smallest error that each
law detects instead: the median and the worst over models and variants.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from assay.harness.checking.statistics import share
from assay.harness.cli.kills import known_family
from assay.harness.cli.main import rooms
from assay.harness.models.loading import runs
from assay.harness.report.texts import number
from assay.harness.results import expectation_files, expectations
from assay.harness.results.expectations import Expectations
from assay.harness.results.specs import ModelKind, ModelSpec
from assay.harness.results.verdicts import LEAK, Kind, Result, Verdict
from assay.harness.runners.environments import Environment
from assay.harness.runners.resumable import Resumable
from assay.harness.runners.runner import FAILED, Settings

DTYPES = ("float32", "bfloat16", "float16")


def of_seed(model: str, seed: int) -> str:
    """The family's model from ``seed``; itself where there is one such model only."""
    spec = ModelSpec.parse(model)
    return model if spec.kind is ModelKind.CHAT else str(replace(spec, seed=seed))


def rate(dtype: str, results: Sequence[Result], expected: Mapping[str, Expectations]) -> str:
    """A row of the table and the false positives; known defects do not count."""
    laws = [each for each in results if each.kind is Kind.LAW]
    refuted = [each for each in laws if each.verdict is Verdict.REFUTED]
    wrong = [r for r in refuted if expectations.judge_result(expected, r, dtype).fails]
    upheld = sum(each.verdict is Verdict.UPHELD for each in laws)
    undecided = sum(each.verdict is Verdict.INCONCLUSIVE for each in laws)
    checks = upheld + len(wrong)
    low, high = share.interval((np.arange(checks) < len(wrong)).astype(float), 0.95)
    cells = dtype, len({each.subject for each in laws}), checks, len(wrong)
    row = " | ".join(map(str, cells))
    row += f" | {low:.2%} to {high:.2%} | {len(refuted) - len(wrong)} | {undecided}"
    return "\n".join([f"| {row} |", *(f"- {r.subject}: {r.id} {r.name}" for r in wrong)])


def leaks(results: Iterable[Result]) -> Iterable[str]:
    """Rows of a table: the smallest error that each law detects."""
    sizes: dict[tuple[str, str], list[float]] = defaultdict(list)
    for each in results:
        if each.kind is Kind.LAW and LEAK in each.details:
            size = each.details[LEAK]  # JSON has no infinity: none was detected
            law = each.id, each.name.partition(" [")[0]
            sizes[law].append(math.inf if size is None else float(size))
    for (id, name), each in sorted(sizes.items()):
        ordered = sorted(each)
        yield f"| {id} {name} | {number(ordered[len(each) // 2])} | {number(ordered[-1])} |"


def main(arguments: Sequence[str]) -> int:
    """Run what is missing and print; 1 where a law is refuted or a run broke, else 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("evidence", type=Path)
    add("--seeds", type=int, default=20)
    add("--family", action="append", help="only this; may be given several times")
    add("--claim", action="append", dest="claims", default=[], help="only this, such as C2")
    add("--dtype", action="append", choices=DTYPES)
    add("--leaks", action="store_true")
    options = parser.parse_args(arguments)
    room = rooms()
    expected = expectation_files.load(room.expectations)
    here = Environment(Path(sys.executable), runs.versions())
    names = [known_family(name, room.families) for name in options.family or room.families]
    families, failed = [room.families[name] for name in names], False
    for dtype in options.dtype or DTYPES:
        results: list[Result] = []
        for seed in range(1, options.seeds + 1):
            settings = Settings(
                profile="glance", seed=seed, dtype=dtype, marker="law", claims=options.claims
            )
            models = [of_seed(family, seed) for family in families]
            path = options.evidence.absolute()
            outcome = Resumable(path, models, settings, ["-q", "--tb=no"]).run(here)
            results += outcome.results
            if outcome.state == FAILED:
                failed = True
                print(f"seed {seed}, {dtype}:", *outcome.notes, outcome.why, file=sys.stderr)
        if options.leaks:
            print(f"\n| {dtype} | typical | worst |\n|---|---:|---:|", *leaks(results), sep="\n")
            continue
        row = rate(dtype, results, expected)
        failed |= "\n" in row
        print("| dtype | models | checks | false positives | 95 % interval | known | undecided |")
        print("|---|---:|---:|---:|---:|---:|---:|", row, sep="\n", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
