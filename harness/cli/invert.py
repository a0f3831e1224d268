"""`assay invert`: recovers a prompt from a model's output, and shows how."""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import torch
from rich.console import Console
from torch import Tensor

from assay import harness
from assay.harness import inversion
from assay.harness.cli import models
from assay.harness.cli.arguments import Parser, ids, positive, whole
from assay.harness.cli.models import Load
from assay.harness.cli.recovery import (
    VERSION,
    Display,
    Recovery,
    Step,
    agreeing,
    pieces,
)
from assay.harness.inversion import Inversion, Rule, SearchResult, Target
from assay.harness.models import capabilities
from assay.harness.models.loading import runs
from assay.harness.models.machine import memory
from assay.harness.models.subject import Subject
from assay.harness.report import texts
from assay.harness.results.errors import BadInput, brief
from assay.harness.results.seeds import LARGEST_SEED
from assay.harness.results.specs import ModelKind, ModelSpec

MOST_STEPS = 10**6

SET_UP = "a map of its states is made, once for this output of the model"

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

SHOWN = (0, 20, 40, 45, 50, 60, 80, 100, 150, 200, 300, 500, 700)
"""Steps of a descent that are shown: document 003's up to 60, then fewer and fewer."""

LATER = 1000
"""From this step on, every 1000th is shown."""


def main(arguments: Sequence[str], load: Load) -> int:
    """Recover the prompts and return 0 if every token was recovered and verified, or 1."""
    options = _options(arguments)
    if not options.prompts and not options.ids:
        raise BadInput("no prompt: give a text, or token ids with --ids")
    Rule(options.steps, options.optimiser, options.distance, options.schedule)
    subject = load(options.model, models.loading(options))
    target = Target(subject.layers if options.depth is None else options.depth, options.target)
    target.check(subject)
    if options.top > subject.vocabulary:
        raise BadInput(f"--top {options.top}: {subject.name} has {subject.vocabulary} tokens")
    if options.given != "all" and options.method not in (None, "exact"):
        raise BadInput(f"--given {options.given}: {options.method} takes all states in order")
    with _model_errors(f"{subject.name}: cannot be examined"):
        prompts = _read(subject, options.prompts, options.ids)
        if options.given == "last":  # its probes suit any model
            method, why = "exact", ""
        else:
            shuffled = options.given == "shuffled"
            method, why = _method(subject, "exact" if shuffled else options.method)
    for name, default in DESCENT.items():
        if method != "descent" and getattr(options, name) != default:
            raise BadInput(f"--{name}: belongs to --method descent, and this is {method}")
    if options.limit < math.inf and (method != "exact" or options.given != "all"):
        raise BadInput("--limit: belongs to --method exact with all states given")
    options.method = method
    display = Display(Console(emoji=False, quiet=options.json), subject)
    inverter = Inverter(subject, target, options, display)
    display.say(inverter.title, "bold")
    if why:
        display.say(why)
    outcomes = [inverter.invert(prompt) for prompt in prompts]
    if len(outcomes) > 1:
        display.total(outcomes)
    if options.json:
        written = msgspec.json.encode(_document(subject, target, options, outcomes))
        sys.stdout.write(msgspec.json.format(written, indent=2).decode() + "\n")
        sys.stdout.flush()
    return 0 if all(outcome.ok for outcome in outcomes) else 1


# -- prompts and the method -----------------------------------------------------------------------


def _read(
    subject: Subject, prompts: Sequence[str], numbers: Sequence[Sequence[int]]
) -> list[list[int]]:
    """The token ids of texts and of ``numbers``; raises `BadInput` for an invalid prompt."""
    rows = [encode(subject, text) for text in prompts] + [list(each) for each in numbers]
    for row in rows:
        if beyond := [i for i in row if i >= subject.vocabulary]:
            raise BadInput(
                f"token {beyond[0]}: {subject.name} has a vocabulary of {subject.vocabulary}, "
                f"so the last token is {subject.vocabulary - 1}"
            )
        if subject.context is not None and len(row) > subject.context:
            raise BadInput(
                f"a prompt of {len(row)} tokens: {subject.name} has a context of {subject.context}"
            )
    return rows


def encode(subject: Subject, text: str) -> list[int]:
    """The token ids of ``text``, special tokens not added; raises `BadInput` without any."""
    if "tokenizer" not in capabilities.probe(subject) or subject.tokenizer is None:
        raise BadInput(f"{subject.name} has no tokenizer; give token ids: --ids 5,17,3")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadInput(f"prompt {text!r}: is not valid text") from error
    tokens = subject.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    if not tokens:
        raise BadInput(f"prompt {text!r}: is empty, there is no token in it")
    return list(tokens)


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


# -- one prompt -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Inverter:
    """One model, target and method, for prompt after prompt."""

    subject: Subject
    target: Target
    options: argparse.Namespace
    display: Display

    @property
    def title(self) -> str:
        """The output that is inverted, and the method."""
        subject, options, block = self.subject, self.options, f"block {self.target.depth}"
        output = str(self.target).replace(block, f"{block} of {subject.layers}", 1)
        words = f"{subject.name}, {output}; {_dtype(subject)} on {subject.device}"
        if options.given != "all":
            kinds = {"shuffled": "states in unknown order", "last": "the last state alone"}
            return f"{words}: {kinds[options.given]}"
        if options.method != "descent":
            return f"{words}: {options.method}"
        kind = "Adam" if options.optimiser == "adam" else "plain descent"
        return (
            f"{words}: {kind}, {options.distance}, rate {options.rate:g} ({options.schedule}), "
            f"start {options.start}, decoder {options.decoder}"
        )

    def invert(self, prompt: list[int]) -> Recovery:
        """Recover one prompt and show how."""
        subject, options = self.subject, self.options
        row, steps, top = torch.tensor([prompt], device=subject.device), list[Step](), None
        with _model_errors(f"{subject.name}: gives no output {self.target}", every=True):
            output = self.target.output(subject, row).detach()
            inversion.check_target(subject, self.target, output)
        began = time.perf_counter()
        with (
            _model_errors(f"{subject.name}: {options.method} cannot be run on it"),
            self.display.progress(prompt, options.method if options.given == "all" else ""),
        ):
            if options.given != "all":
                result = self._from_less(output)
            elif options.method == "descent":
                result = self._descend(prompt, output, steps)
            else:
                result = self._search(prompt, output)
        seconds = time.perf_counter() - began - result.set_up_seconds
        if options.top and result.embeddings is not None:
            ends = result.embeddings[0]
            top = inversion.likeliest(subject, ends, options.top, options.decoder).tolist()
        tokens = result.ids[0].tolist()
        outcome = Recovery(
            ids=prompt,
            text="".join(pieces(subject, prompt)),
            found=tokens,
            found_text="".join(pieces(subject, tokens)),
            recovered=agreeing(tokens, prompt),
            verified=result.verified[0].tolist(),
            distances=result.distances[0].tolist(),
            tried=result.tried[0].tolist(),
            passes=int(result.passes[0]),
            equal=[result.others.get((0, position), []) for position in range(len(prompt))],
            any_length=bool(result.any_length),
            seconds=seconds,
            set_up=result.set_up,
            set_up_seconds=result.set_up_seconds,
            steps=steps,
            top=top or [],
            notes=result.notes,
        )
        self.display.end(outcome)
        return outcome

    def _search(self, prompt: list[int], output: Tensor) -> Inversion:
        whole, until = self.options.method == "exact", math.inf
        if whole:
            self.display.state(SET_UP)

        def show(number: int, search: SearchResult) -> None:
            nonlocal until
            if number == 0:  # the first map is made; another one's time counts apart
                until = time.perf_counter() + self.options.limit
            tokens = search.ids[0, : len(prompt) if whole else number].tolist()
            verified = f"{int(search.verified[0].sum())} of {len(prompt)}"
            self.display.row(prompt, tokens, *((str(number), verified) if number else ("", "")))
            left = until + search.set_up_seconds - time.perf_counter()
            words = f"{verified} verified, {int(search.tried.sum())} candidates tried"
            words += f", {max(0, left):.0f} s left" if left < math.inf else ""
            self.display.state(words if number or not whole else SET_UP)

        keep = None if self.options.no_keep else inversion.default_folder()
        where = (self.subject, self.target, output, self.options.method)
        return inversion.invert(*where, tell=show, keep=keep, limit=self.options.limit)

    def _descend(self, prompt: list[int], output: Tensor, steps: list[Step]) -> Inversion:
        """Descend, and append the steps that are shown to ``steps``."""
        options, last = self.options, self.options.steps

        def show(rows: slice, step: int, embeddings: Tensor, losses: Tensor) -> None:
            tokens = inversion.decode(self.subject, embeddings[0], options.decoder).tolist()
            steps.append(Step(step, float(losses[0]), tokens))
            recovered = f"{agreeing(tokens, prompt)} of {len(prompt)}"
            self.display.row(prompt, tokens, str(step), texts.number(steps[-1].loss), recovered)

        return inversion.invert(
            *(self.subject, self.target, output, "descent"),
            decoder=options.decoder,
            rule=Rule(last, options.optimiser, options.distance, options.schedule),
            rate=options.rate,
            seed=options.seed,
            begin=options.start,
            watch=[*(step for step in SHOWN if step < last), *range(LATER, last, LATER), last],
            at_step=show,
        )

    def _from_less(self, output: Tensor) -> Inversion:
        """From the states in unknown order, or the last of them."""
        n = output.shape[1]
        if self.options.given == "last":
            result = inversion.from_last(self.subject, self.target, output[:, -1], n)
            result.notes.insert(0, "linear probes of the last state; few tokens can be right")
            return result
        draw = torch.Generator().manual_seed(self.options.seed)
        order = torch.randperm(n, generator=draw).to(output.device)
        result, places = inversion.from_shuffled(self.subject, self.target, output[:, order])
        here = order[places[0]] == torch.arange(n, device=order.device)
        right = int((here & result.verified[0]).sum())
        result.notes.insert(0, f"{right} of {n} states were put in their places")
        return result


def _document(
    subject: Subject, target: Target, options: argparse.Namespace, outcomes: list[Recovery]
) -> dict[str, Any]:
    """What ``--json`` writes (docs/schema.md)."""
    names = ("steps", "rate", "optimiser", "distance", "schedule", "decoder", "start", "seed")
    how = {name: getattr(options, name) for name in names}
    return {
        "schema": VERSION,
        "suite": harness.__version__,
        "versions": runs.versions(),
        "model": subject.name,
        "digest": subject.digest,
        "vocabulary": subject.vocabulary,
        "device": runs.device_name(str(subject.device)),
        "dtype": _dtype(subject),
        "attention": subject.attention,
        "depth": target.depth,
        "target": target.through,
        "given": options.given,
        "method": options.method,
        "descent": how if options.method == "descent" else None,
        "ok": all(outcome.ok for outcome in outcomes),
        "prompts": outcomes,
    }


def _dtype(subject: Subject) -> str:
    return str(subject.dtype).removeprefix("torch.")


@contextmanager
def _model_errors(words: str, every: bool = False) -> Iterator[None]:
    """Turn a model's errors into `BadInput`, with ``every`` also those of Python code.

    Out-of-memory errors are reported as such.
    """
    code = (AttributeError, LookupError, TypeError, ValueError) if every else ()
    try:
        yield
    except BadInput:
        raise
    except (RuntimeError, AssertionError, MemoryError, *code) as error:
        if memory.lacking(error):
            raise BadInput(f"too little memory: {brief(error)}; try a shorter prompt") from error
        raise BadInput(f"{words} ({brief(error)})") from error


# -- the command line -----------------------------------------------------------------------------
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
    has_more = len(options.prompts) > 1 or bool(options.ids)
    if spec.kind is not ModelKind.CHECKPOINT:  # such as tiny:llama
        return has_more
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
    words = "a prompt as token ids; may be given several times"
    add("--ids", action="append", default=[], type=ids, metavar="5,17,3", help=words)
    words = "invert the output of the first K blocks (default: all)"
    add("--depth", type=whole(0), metavar="K", help=words)
    words = (
        "that output itself; through the head; after all blocks, the normed states or the "
        "logits; or the keys or values that the last of them caches (default: block)"
    )
    add("--target", choices=inversion.THROUGH, default="block", help=words)
    words = (
        "what is known of it: the states of all positions, the same in an unknown order (drawn "
        "by --seed), or the last position's alone, from which few tokens are recovered "
        "(default: all)"
    )
    add("--given", choices=inversion.GIVEN, default="all", help=words)
    words = (
        "exact guesses whole prompts and verifies them, token-by-token ranks tokens, exhaustive "
        "tries all, descent is document 003's (default: exact; descent for a model that is not "
        "causal)"
    )
    add("--method", choices=inversion.METHODS, help=words)
    words = "seed of the descent's start, or of the order of shuffled states"
    add("--seed", type=whole(0, LARGEST_SEED), default=0, metavar="N", help=words)
    words = "keep nothing of the model in the cache, where exact keeps what it learned of it"
    add("--no-keep", action="store_true", help=words)
    words = "end exact's search after so many seconds, set-up apart, with what is verified"
    add("--limit", type=positive, default=math.inf, metavar="SECONDS", help=words)
    add("--json", action="store_true", help="write JSON, and nothing else")
    models.add_options(parser)
    parser.set_defaults(model=None, **DESCENT)  # the first word may name the model
    add = parser.add_argument_group("descent").add_argument
    add("--steps", type=whole(1, MOST_STEPS), metavar="N", help=f"(default: {Rule.steps})")
    words = (
        "learning rate; at 1 the first step is as large as the embedding's own scale "
        f"(default: {inversion.RATE})"
    )
    add("--rate", type=positive, metavar="R", help=words)
    add("--optimiser", metavar="NAME", help="descent or adam (default: descent)")
    add("--distance", metavar="NAME", help="l1 or l2 (default: l1)")
    add("--schedule", metavar="NAME", help="linear, cosine or constant (default: linear)")
    add("--decoder", choices=inversion.DECODERS, help="from embeddings to tokens")
    words = "noise of mean 0 and the embedding's own scale, or document 003's (default: scaled)"
    add("--start", choices=tuple(inversion.STARTS), help=words)
    add("--top", type=whole(1), metavar="K", help="show the K nearest tokens at each position")
    return parser
