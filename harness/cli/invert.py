"""`assay invert`: recovers a prompt from a model's output, and shows how."""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import sys
from collections.abc import Sequence

from rich.console import Console

from assay.harness import inversion
from assay.harness.cli import models
from assay.harness.cli.arguments import Parser, ids, positive, whole
from assay.harness.cli.models import Load
from assay.harness.cli.prompts import read
from assay.harness.cli.recovering import Recovering, model_errors
from assay.harness.cli.recovery import document
from assay.harness.cli.showing import PromptDisplay
from assay.harness.inversion import Target
from assay.harness.inversion.from_less import GIVEN
from assay.harness.inversion.rule import Rule
from assay.harness.inversion.target import THROUGH
from assay.harness.models import capabilities
from assay.harness.models.subject import Subject
from assay.harness.results.errors import BadInput
from assay.harness.results.seeds import LARGEST_SEED
from assay.harness.results.specs import ModelKind, ModelSpec

MOST_STEPS = 10**6

DEFAULT = "reference"
"""The model that is inverted unless another is named."""

HUB = re.compile(r"[\w.-]+/[\w.-]+")
"""An id of the hub."""

DESCENT = {
    "steps": Rule.steps,
    "rate": inversion.RATE,
    "optimiser": Rule.optimiser,
    "distance": Rule.distance,
    "schedule": Rule.schedule,
    "decoder": "nearest",
    "start": "scaled",
    "top": 0,
}
"""Options that belong to a descent, with their defaults."""


def main(arguments: Sequence[str], load: Load) -> int:
    """Recover the prompts and return 0 if every token was recovered and verified, or 1."""
    options = _options(arguments)
    if not options.prompts and not options.ids:
        raise BadInput("no prompt: give a text, or token ids with --ids")
    of_descent = [name for name in DESCENT if getattr(options, name) is not None]
    for name, default in DESCENT.items():
        if name not in of_descent:
            setattr(options, name, default)
    rule = Rule(options.steps, options.optimiser, options.distance, options.schedule)
    if options.method is not None:
        _refuse_idle(options.method, of_descent)
    subject = load(options.model, models.loading(options))
    target = Target(subject.layers if options.depth is None else options.depth, options.target)
    target.check(subject)
    if options.top > subject.vocabulary:
        raise BadInput(f"--top {options.top}: {subject.name} has {subject.vocabulary} tokens")
    if options.given != "all" and options.method not in (None, "exact"):
        raise BadInput(f"--given {options.given}: {options.method} takes all states in order")
    with model_errors(f"{subject.name}: cannot be examined"):
        prompts = read(subject, options.prompts, options.ids)
        method, why = _method(subject, options.method)
        if options.given == "last":  # its probes suit any model
            method, why = "exact", ""
    _refuse_idle(method, of_descent)
    file = io.StringIO() if options.json else None
    console = Console(emoji=False, quiet=file is not None, file=file)
    display = PromptDisplay(console, subject)
    run = Recovering(subject, target, method, rule, options, display)
    display.say(run.title, "bold")
    if why:
        display.say(why)
    outcomes = [run.invert(prompt) for prompt in prompts]
    if len(outcomes) > 1:
        display.total(outcomes)
    if options.json:
        recoveries = document(subject, target, method, options, outcomes)
        sys.stdout.write(json.dumps(recoveries, indent=2, allow_nan=False) + "\n")
        sys.stdout.flush()
    return 0 if all(outcome.ok for outcome in outcomes) else 1


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    options = _parser().read(arguments, "prompts")
    if options.model is None:
        options.model = options.prompts.pop(0) if _begins_with_a_model(options) else DEFAULT
    return options


def _begins_with_a_model(options: argparse.Namespace) -> bool:
    """Whether the first word names a model, as for `assay check`, and not a prompt."""
    if not options.prompts:
        return False
    spec = ModelSpec.recorded(options.prompts[0])
    if spec.kind is not ModelKind.CHECKPOINT:  # such as tiny:llama
        return len(options.prompts) > 1 or bool(options.ids)
    has_more = len(options.prompts) > 1 or bool(options.ids)
    return os.path.exists(spec.name) or (has_more and bool(HUB.fullmatch(spec.name)))


def _parser() -> Parser:
    parser = Parser(
        prog="assay invert",
        usage="%(prog)s [MODEL] PROMPT ... [OPTION ...]",
        description="Recover prompts from a model's output, and show how it is done. The exit "
        "code is 0 if every token was recovered and verified, otherwise 1; 4 for invalid input.",
    )
    add = parser.add_argument
    add("prompts", nargs="*", metavar="PROMPT", help="a text; no special tokens are added to it")
    add(
        "--ids",
        action="append",
        default=[],
        type=ids,
        metavar="5,17,3",
        help="a prompt as token ids; may be given several times",
    )
    add(
        "--depth",
        type=whole(0),
        metavar="K",
        help="invert the output of the first K blocks (default: all)",
    )
    add(
        "--target",
        choices=THROUGH,
        default="block",
        help="that output itself; through the head; after all blocks, the normed states or the "
        "logits; or the keys or values that the last of them caches (default: block)",
    )
    add(
        "--given",
        choices=GIVEN,
        default="all",
        help="what is known of it: the states of all positions, the same in an unknown order "
        "(drawn by --seed), or the last position's alone, from which few tokens are recovered "
        "(default: all)",
    )
    add(
        "--method",
        choices=inversion.METHODS,
        help="exact guesses whole prompts and verifies them, token-by-token ranks tokens, "
        "exhaustive tries all, descent is document 003's (default: exact; descent for a model "
        "that is not causal)",
    )
    add(
        "--seed",
        type=whole(0, LARGEST_SEED),
        default=0,
        metavar="N",
        help="seed of the descent's start, or of the order of shuffled states",
    )
    add(
        "--no-keep",
        action="store_true",
        help="keep nothing of the model in the cache; by default exact keeps there what it "
        "learned of it",
    )
    add("--json", action="store_true", help="write JSON, and nothing else")
    models.add_options(parser)
    parser.set_defaults(model=None)  # the first word may name it
    _add_descent(parser.add_argument_group("descent"))
    return parser


def _add_descent(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--steps", type=whole(1, MOST_STEPS), metavar="N", help=f"(default: {Rule.steps})")
    add(
        "--rate",
        type=positive,
        metavar="R",
        help="learning rate; at 1 the first step is as large as the embedding's own scale "
        f"(default: {inversion.RATE})",
    )
    add("--optimiser", metavar="NAME", help="descent or adam (default: descent)")
    add("--distance", metavar="NAME", help="l1 or l2 (default: l1)")
    add("--schedule", metavar="NAME", help="linear, cosine or constant (default: linear)")
    add("--decoder", choices=inversion.DECODERS, help="from embeddings to tokens")
    add(
        "--start",
        choices=tuple(inversion.STARTS),
        help="noise of mean 0 and the embedding's own scale, or document 003's (default: scaled)",
    )
    add("--top", type=whole(1), metavar="K", help="show the K nearest tokens at each position")


def _refuse_idle(method: str, of_descent: Sequence[str]) -> None:
    """Raise `BadInput` for an option that would do nothing."""
    if method != "descent" and of_descent:
        raise BadInput(f"--{of_descent[0]}: belongs to --method descent, and this is {method}")


def _method(subject: Subject, requested: str | None) -> tuple[str, str]:
    """The method, and why if it is not the default; `BadInput` if the subject lacks support."""
    able = capabilities.probe(subject)
    not_causal = able.why_missing("causal")
    method = requested or ("exact" if not_causal is None else "descent")
    if method != "descent" and not_causal is not None:
        raise BadInput(
            f"--method {method}: {subject.name} is not causal ({not_causal}); try descent"
        )
    if method == "descent" and (why := able.why_missing("inputs-embeds")) is not None:
        raise BadInput(f"--method descent: {why}")
    if requested is None and not_causal is not None:
        return method, f"by descent: {subject.name} is not causal ({not_causal})"
    return method, ""
