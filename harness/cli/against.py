"""`assay check A --against B`: whether two models compute the same, and where they do not."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.harness.checking.profiles import PROFILES, Profile
from assay.harness.cli import models
from assay.harness.cli.arguments import Parser, add_profile, add_seed, file, word
from assay.harness.cli.models import Load
from assay.harness.engines import stored as of_engines
from assay.harness.engines.subject import EngineSubject
from assay.harness.models.loading.folders import read_json
from assay.harness.models.loading.runs import Options
from assay.harness.models.subject import Subject
from assay.harness.operations import parity
from assay.harness.operations.parity import Parity, stored, stored_comparison
from assay.harness.operations.parity.stored import Stored
from assay.harness.report.parity import lines
from assay.harness.results import schema
from assay.harness.results.errors import BadInput
from assay.harness.results.evidence import Evidence
from assay.harness.results.outputs import keep_apart

OPTION = "--against"

OWN = ("dtype", "attention", "revision", "base", "device")
"""Options of loading that the second model may have its own values of."""


def main(arguments: Sequence[str], load: Load, inspect: Callable[[str, Options], Any]) -> int:
    """Compare the two models, or one with a stored reference; 0 if they agree, else 1.

    ``inspect`` raises the `BadInput` that ``load`` would, without reading weights.
    """
    options = _parser().read(arguments, "models")
    if len(options.models) > 1:
        raise BadInput(f"{OPTION}: compares one model, not {len(options.models)}")
    name = word(options.models[0]) if options.models else options.model
    keep_apart({"--json": options.json, "--evidence": options.evidence})
    profile, mine = PROFILES[options.profile], models.loading(options)
    if options.against.endswith(stored.SUFFIX):
        reference = stored.read(Path(options.against))
        one = load(name, mine)
        if isinstance(one, EngineSubject):
            with closing(one.engine):
                outcome = of_engines.compare(one, reference)
        else:
            outcome = stored_comparison.compare(one, reference)
        return _report(outcome, one, reference, options, profile)
    own = {each: getattr(options, f"against_{each}") for each in OWN}
    theirs = replace(mine, **{each: value for each, value in own.items() if value is not None})
    both = ((name, mine), (options.against, theirs))
    _require_one_vocabulary(name, options.against)
    for spec, how in both:
        inspect(spec, how)
    one, other = (load(spec, how) for spec, how in both)
    outcome = parity.compare(one, other, profile, options.seed, not options.logits_only)
    return _report(outcome, one, other, options, profile)


def _report(
    outcome: Parity, one: Subject, other: Subject | Stored, options: Namespace, profile: Profile
) -> int:
    """Write and print the outcome, and return the exit code."""
    if options.json or options.evidence:
        run = parity.describe(outcome, one, other, profile, options.seed)
    if options.evidence:
        with Evidence.open(options.evidence) as evidence:
            evidence.add(run, outcome.results, one.digest, outcome.exit)
    if options.json:
        schema.write_json(options.json, run, outcome.results)
    sys.stdout.write("\n".join(lines(outcome, one, other)) + "\n")
    sys.stdout.flush()
    return outcome.exit


def _require_one_vocabulary(one: str, other: str) -> None:
    """Raise `BadInput` where two folders have different vocabularies, before weights are read."""
    sizes = []
    for folder in (one, other):
        if not (Path(folder) / "config.json").is_file():
            return
        raw = read_json(Path(folder) / "config.json", folder)
        sizes.append(raw.get("vocab_size"))
    if all(isinstance(size, int) for size in sizes) and sizes[0] != sizes[1]:
        raise BadInput(
            f"{one} has a vocabulary of {sizes[0]} and {other} of {sizes[1]}: the same ids cannot "
            "go to both"
        )


def _parser() -> Parser:
    parser = Parser(
        prog="assay check MODEL --against MODEL",
        description="Compare two models that should compute the same: the same ids go to both, "
        "and the outputs of their blocks and their logits are compared, as they run and in "
        "float64. The second model is taken for right. The exit code is 0 if they agree, 1 if "
        "they do not or nothing could be decided, 4 for invalid input.",
    )
    add = parser.add_argument
    add("models", nargs="*", metavar="MODEL", help="the model to compare; see --model")
    add(
        OPTION,
        required=True,
        type=word,
        metavar="MODEL",
        help="the model, or stored reference, it should agree with",
    )
    for name in OWN:
        help = f"--{name} of the model after {OPTION} (default: that of the first)"
        add(f"{OPTION}-{name}", type=word, metavar=name.upper(), help=help)
    add("--logits-only", action="store_true", help="leave out the outputs of the blocks")
    add_profile(parser)
    add_seed(parser)
    add("--json", type=file, metavar="FILE", help="write the results as JSON")
    add("--evidence", type=file, metavar="FILE", help="add the results to an evidence file")
    models.add_options(parser)
    return parser
